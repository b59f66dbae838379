// The column of the largest element of every row, the first among equals; 0xffffffff for a row with something that is not a
// number. A workgroup per row. Shares 2 KiB.

const THREADS: u32 = 256u;
const NOT_A_NUMBER: u32 = 0xffffffffu;

struct Parameters {
    width: u32,
    rows: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;

var<workgroup> values: array<f32, THREADS>;
var<workgroup> columns: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let row = group.y * groups.x + group.x;
    if row >= parameters.rows {
        return; // all threads of the workgroup alike
    }
    let start = row * parameters.width;
    var best = min(thread, parameters.width - 1u);
    var most = x[start + best];
    var wrong = false;
    for (var column = best; column < parameters.width; column += THREADS) {
        let value = x[start + column];
        // compilers may think that x != x is never true
        wrong = wrong || (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
        if value > most {
            most = value;
            best = column;
        }
    }
    values[thread] = most;
    columns[thread] = select(best, NOT_A_NUMBER, wrong);
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if thread < half {
            let other = columns[thread + half];
            let value = values[thread + half];
            let own = columns[thread];
            let better = value > values[thread] || (value == values[thread] && other < own);
            if own != NOT_A_NUMBER && (better || other == NOT_A_NUMBER) {
                values[thread] = value;
                columns[thread] = other;
            }
        }
    }
    if thread == 0u {
        output[row] = columns[0];
    }
}
