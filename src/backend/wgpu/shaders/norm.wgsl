// y = normalised(x) * (offset + weight) + bias, a workgroup per row: layer norm, or root mean square.
//
// The mean is subtracted before squares are summed, so that a large mean costs no digits. Shares 2 KiB.

struct Parameters {
    width: u32,
    rows: u32,
    kind: u32, // 0: layer norm; 1: root mean square
    has_weight: u32,
    has_bias: u32,
    offset: f32,
    eps: f32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;

@compute @workgroup_size(THREADS)
fn main(
    thread: Thread,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let row = group.y * groups.x + group.x;
    if row >= parameters.rows {
        return; // all threads of the workgroup alike
    }
    let width = parameters.width;
    let start = row * width;
    var mean = 0.0;
    if parameters.kind == 0u {
        var sum = 0.0;
        for (var column = thread.index; column < width; column += THREADS) {
            sum += x[start + column];
        }
        mean = sum_of_all(thread, vec4(sum, 0.0, 0.0, 0.0)).x / f32(width);
    }
    var squares = 0.0;
    for (var column = thread.index; column < width; column += THREADS) {
        let centred = x[start + column] - mean;
        squares += centred * centred;
    }
    let variance = sum_of_all(thread, vec4(squares, 0.0, 0.0, 0.0)).x / f32(width);
    let factor = 1.0 / sqrt(variance + parameters.eps);
    for (var column = thread.index; column < width; column += THREADS) {
        var value = (x[start + column] - mean) * factor;
        if parameters.has_weight == 1u {
            value *= parameters.offset + weight[column];
        }
        if parameters.has_bias == 1u {
            value += bias[column];
        }
        output[start + column] = value;
    }
}
