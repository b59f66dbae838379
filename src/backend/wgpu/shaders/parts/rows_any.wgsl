// Rows of a matrix of any width, four elements at a time; elements beyond the width are zero.

@group(0) @binding(1) var<storage, read> x: array<f32>;

fn row_quad(row: u32, quad: u32, width: u32) -> vec4<f32> {
    let start = row * width;
    let column = vec4(0u, 1u, 2u, 3u) + 4u * quad;
    let inside = column < vec4(width);
    let at = start + min(column, vec4(width - 1u));
    return select(vec4(0.0), vec4(x[at.x], x[at.y], x[at.z], x[at.w]), inside);
}
