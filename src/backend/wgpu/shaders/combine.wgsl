// A function of two elements at the same place; the second tensor may be one row that stands for all, or one
// column that does.

struct Parameters {
    count: u32,
    repeat: u32, // elements of the second tensor
    each: u32, // elements of the first that meet one of the second
    operation: u32, // 0: a + b; 1: a * b; 2: activation(a) * b
    activation: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    let first = a[at];
    let second = b[at / parameters.each % parameters.repeat];
    switch parameters.operation {
        case 0u: { output[at] = first + second; }
        case 1u: { output[at] = first * second; }
        default: { output[at] = activate(parameters.activation, first) * second; }
    }
}
