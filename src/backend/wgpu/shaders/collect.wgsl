// Row r of the result is the sum of what stands at the places of its `top` pairs in the order of experts, each times its weight
// if asked; in the order of its experts.

struct Parameters {
    count: u32,
    width: u32,
    top: u32,
    experts: u32,
    weighted: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> chosen: array<u32>;
@group(0) @binding(3) var<storage, read> grouped: array<u32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    let pairs = parameters.count / parameters.width * parameters.top;
    let places = parameters.experts + 1u + pairs;
    let first = at / parameters.width * parameters.top;
    var sum = 0.0;
    for (var pair = first; pair < first + parameters.top; pair++) {
        var value = x[grouped[places + pair] * parameters.width + at % parameters.width];
        if parameters.weighted == 1u {
            value *= bitcast<f32>(chosen[pairs + pair]);
        }
        sum += value;
    }
    output[at] = sum;
}
