// Row r of the result is the row of x that belongs to the pair at place r in the order of experts, times its weight if asked.

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
    let pairs = parameters.count / parameters.width;
    let pair = grouped[parameters.experts + 1u + at / parameters.width];
    var value = x[pair / parameters.top * parameters.width + at % parameters.width];
    if parameters.weighted == 1u {
        value *= bitcast<f32>(chosen[pairs + pair]);
    }
    output[at] = value;
}
