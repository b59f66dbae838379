// Rows of a weight by index, as f32. A weight may lie in several buffers: rows of the others are left alone.

struct Parameters {
    count: u32,
    width: u32,
    quads: u32, // fours of values in a stored row
    first: u32, // the first row in this buffer
    rows: u32, // rows in this buffer
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    let id = ids[at / parameters.width];
    let column = at % parameters.width;
    if id < parameters.first || id - parameters.first >= parameters.rows {
        return;
    }
    let quad = weight_quad((id - parameters.first) * parameters.quads + column / 4u);
    output[at] = quad[column % 4u];
}
