// activation(x Wᵀ + bias), then a sum or a product with other rows, for at most ROWS rows, as when one token is generated: the time is that of reading W.
//
// A workgroup computes COLUMNS columns of all rows, or of rows of one expert with its matrix; its threads stride along the summed axis, then add up. Shares 1 KiB.

const COLUMNS: u32 = 4u;

struct Parameters {
    rows: u32,
    width: u32,
    columns: u32, // rows of W in this buffer
    quads: u32, // fours of values in a stored row of W
    first: u32, // the column of the result that belongs to the first row of W
    stride: u32, // columns of the result
    activation: u32,
    has_bias: u32,
    then: u32, // 0: nothing; 1: add; 2: multiply
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read> other: array<f32>;

@compute @workgroup_size(THREADS)
fn main(
    thread: Thread,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let start = (group.y * groups.x + group.x) * COLUMNS;
    let part = part_of(group.z);
    if start >= columns() || part.top >= part.end {
        return; // all threads of the workgroup alike
    }
    // a column that is not here is computed as another, and not written
    var places: array<u32, COLUMNS>;
    for (var j = 0u; j < COLUMNS; j++) {
        places[j] = min(start + j + part.matrix, parameters.columns - 1u) * parameters.quads;
    }
    var sums: array<vec4<f32>, ROWS>;
    for (var row = 0u; row < ROWS; row++) {
        sums[row] = vec4(0.0);
    }
    for (var quad = thread.index; quad < parameters.quads; quad += THREADS) {
        let w0 = weight_quad(places[0] + quad);
        let w1 = weight_quad(places[1] + quad);
        let w2 = weight_quad(places[2] + quad);
        let w3 = weight_quad(places[3] + quad);
        for (var row = 0u; row < ROWS; row++) {
            let value = row_quad(min(part.top + row, part.end - 1u), quad, parameters.width);
            sums[row] += vec4(dot(value, w0), dot(value, w1), dot(value, w2), dot(value, w3));
        }
    }
    for (var line = 0u; line < ROWS; line++) {
        let sum = sum_of_all(thread, sums[line]);
        let row = part.top + line;
        let column = start + thread.index;
        let here = column < columns() && column + part.matrix < parameters.columns;
        if row < part.end && thread.index < COLUMNS && here {
            let to = part.to + column;
            var value = sum[thread.index];
            if parameters.has_bias == 1u {
                value += bias[part.bias + to];
            }
            value = activate(parameters.activation, value);
            switch parameters.then {
                case 1u: { value += other[row * parameters.stride + to]; }
                case 2u: { value *= other[row * parameters.stride + to]; }
                default: {}
            }
            output[row * parameters.stride + to] = value;
        }
    }
}
