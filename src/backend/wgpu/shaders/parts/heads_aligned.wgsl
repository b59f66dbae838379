// Fours of the elements of a head, whose size HEAD is a multiple of four.

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;

const HEAD_QUADS: u32 = HEAD / 4u;

fn query_quad(row: u32, head: u32, quad: u32) -> vec4<f32> {
    return q[(row * parameters.heads + head) * HEAD_QUADS + quad];
}

fn key_quad(row: u32, head: u32, quad: u32) -> vec4<f32> {
    return k[(row * (parameters.heads / parameters.sharing) + head) * HEAD_QUADS + quad];
}

fn value_quad(row: u32, head: u32, quad: u32) -> vec4<f32> {
    return v[(row * (parameters.heads / parameters.sharing) + head) * HEAD_QUADS + quad];
}
