// Row r of the result is the sum over j < terms of shares[r * terms + j] * x[rows[r * terms + j]], in that order.

struct Parameters {
    count: u32,
    width: u32,
    terms: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read> shares: array<f32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    let first = at / parameters.width * parameters.terms;
    let column = at % parameters.width;
    var sum = shares[first] * x[rows[first] * parameters.width + column];
    for (var term = first + 1u; term < first + parameters.terms; term++) {
        sum += shares[term] * x[rows[term] * parameters.width + column];
    }
    output[at] = sum;
}
