// Rows of a matrix whose width is a multiple of four, four elements at a time.

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;

fn row_quad(row: u32, quad: u32, width: u32) -> vec4<f32> {
    return x[row * (width / 4u) + quad];
}
