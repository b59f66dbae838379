// activation(x Wᵀ + bias), then a sum or a product with other rows, for many rows: x [rows, width], W [columns, width] in a storage type of its own. All rows
// meet the same W, or rows that lie together a part of it (parts/tiles*.wgsl).
//
// A workgroup of 16 x 16 threads computes TILE x TILE of the result, a thread TILE/16 x TILE/16 of them, at distances of
// 16. Both operands lie along the summed axis, so tiles of 16 of it are shared as fours of values without transposing, and
// a thread multiplies them by `dot`. Shares 2 * TILE * 64 bytes: 8 or 16 KiB. Sums are in f32.

const SIDE: u32 = 16u; // threads
const EACH: u32 = TILE / SIDE; // rows, and columns, of a thread
const QUADS: u32 = 4u; // fours of values along the summed axis

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

var<workgroup> left: array<vec4<f32>, TILE * QUADS>;
var<workgroup> right: array<vec4<f32>, TILE * QUADS>;

// Where a four of a row lies. Rows are 64 bytes apart, so without the exchange all threads would ask the same banks.
fn slot(row: u32, quad: u32) -> u32 {
    return row * QUADS + (quad ^ ((row >> 1u) & 3u));
}

@compute @workgroup_size(16, 16)
fn main(
    @builtin(local_invocation_id) thread: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) group: vec3<u32>,
) {
    let part = part_of(group.y);
    let start = group.x * TILE;
    if part.top >= part.end {
        return; // all threads of the workgroup alike
    }
    var sums: array<array<f32, EACH>, EACH>;
    for (var i = 0u; i < EACH; i++) {
        for (var j = 0u; j < EACH; j++) {
            sums[i][j] = 0.0;
        }
    }
    for (var first = 0u; first < parameters.quads; first += QUADS) {
        workgroupBarrier(); // the tiles before have been read
        for (var at = index; at < TILE * QUADS; at += SIDE * SIDE) {
            let line = at / QUADS;
            let quad = first + at % QUADS;
            let place = slot(line, at % QUADS);
            left[place] = vec4(0.0);
            right[place] = vec4(0.0);
            if quad < parameters.quads {
                if part.top + line < part.end {
                    left[place] = row_quad(part.top + line, quad, parameters.width);
                }
                let held = start + line + part.matrix;
                if start + line < columns() && held < parameters.columns {
                    right[place] = weight_quad(held * parameters.quads + quad);
                }
            }
        }
        workgroupBarrier();
        for (var quad = 0u; quad < QUADS; quad++) {
            var values: array<vec4<f32>, EACH>;
            for (var j = 0u; j < EACH; j++) {
                values[j] = right[slot(thread.x + SIDE * j, quad)];
            }
            for (var i = 0u; i < EACH; i++) {
                let value = left[slot(thread.y + SIDE * i, quad)];
                for (var j = 0u; j < EACH; j++) {
                    sums[i][j] += dot(value, values[j]);
                }
            }
        }
    }
    for (var i = 0u; i < EACH; i++) {
        let row = part.top + thread.y + SIDE * i;
        for (var j = 0u; j < EACH; j++) {
            let column = start + thread.x + SIDE * j;
            if row < part.end && column < columns() && column + part.matrix < parameters.columns {
                let to = part.to + column;
                var value = sums[i][j];
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
}
