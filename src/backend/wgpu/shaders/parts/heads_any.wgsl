// Fours of the elements of a head of any size HEAD; those beyond it are zero.

@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;

const HEAD_QUADS: u32 = (HEAD + 3u) / 4u;

fn columns_of(quad: u32) -> vec4<u32> {
    return min(vec4(0u, 1u, 2u, 3u) + 4u * quad, vec4(HEAD - 1u));
}

fn inside(quad: u32) -> vec4<bool> {
    return vec4(0u, 1u, 2u, 3u) + 4u * quad < vec4(HEAD);
}

fn query_quad(row: u32, head: u32, quad: u32) -> vec4<f32> {
    let at = (row * parameters.heads + head) * HEAD + columns_of(quad);
    return select(vec4(0.0), vec4(q[at.x], q[at.y], q[at.z], q[at.w]), inside(quad));
}

fn key_quad(row: u32, head: u32, quad: u32) -> vec4<f32> {
    let at = (row * (parameters.heads / parameters.sharing) + head) * HEAD + columns_of(quad);
    return select(vec4(0.0), vec4(k[at.x], k[at.y], k[at.z], k[at.w]), inside(quad));
}

fn value_quad(row: u32, head: u32, quad: u32) -> vec4<f32> {
    let at = (row * (parameters.heads / parameters.sharing) + head) * HEAD + columns_of(quad);
    return select(vec4(0.0), vec4(v[at.x], v[at.y], v[at.z], v[at.w]), inside(quad));
}
