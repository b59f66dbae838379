// Multiplications and additions without memory: the rate that the device reaches at most. Used by the benchmark alone.

struct Parameters {
    rounds: u32, // of 64 multiplications and additions of four values each
    factor: f32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) place: vec3<u32>) {
    let start = vec4(f32(place.x) * 1.0e-6);
    let factor = vec4(parameters.factor);
    var a = start;
    var b = start + 0.1;
    var c = start + 0.2;
    var d = start + 0.3;
    // four sums that do not wait for each other
    for (var round = 0u; round < parameters.rounds; round++) {
        for (var step = 0u; step < 16u; step++) {
            a = fma(a, factor, start);
            b = fma(b, factor, start);
            c = fma(c, factor, start);
            d = fma(d, factor, start);
        }
    }
    output[place.x] = a + b + c + d;
}
