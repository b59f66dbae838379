// Copies a block of columns of some rows to a place in another matrix.

struct Parameters {
    count: u32,
    width: u32, // columns of the block
    source: u32, // the first element
    source_stride: u32, // elements from one row to the next
    place: u32,
    place_stride: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    let row = at / parameters.width;
    let column = at % parameters.width;
    output[parameters.place + row * parameters.place_stride + column] =
        x[parameters.source + row * parameters.source_stride + column];
}
