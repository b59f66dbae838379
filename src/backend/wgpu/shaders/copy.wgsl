// Copies a block of columns of some rows to a place in another matrix. An Element is one number, or four where everything
// is a multiple of four; all sizes are counted in them.

struct Parameters {
    count: u32,
    width: u32, // columns of the block
    source: u32, // the first element
    source_stride: u32, // elements from one row to the next
    place: u32,
    place_stride: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<Element>;
@group(0) @binding(1) var<storage, read> x: array<Element>;

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
