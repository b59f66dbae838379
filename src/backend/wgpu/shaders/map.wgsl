// A function of every element: activations, factors, soft caps.

struct Parameters {
    count: u32,
    operation: u32, // below 8 the activation of that number; 8: times factor; 9: factor tanh(x / factor)
    factor: f32,
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
    let value = x[at];
    switch parameters.operation {
        case 8u: { output[at] = value * parameters.factor; }
        case 9u: { output[at] = parameters.factor * precise_tanh(value / parameters.factor); }
        default: { output[at] = activate(parameters.operation, value); }
    }
}
