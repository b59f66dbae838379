// Row r of the result is row rows[r] of x.

struct Parameters {
    count: u32,
    width: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> rows: array<u32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    output[at] = x[rows[at / parameters.width] * parameters.width + at % parameters.width];
}
