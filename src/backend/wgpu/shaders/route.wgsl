// Which `top` experts each row goes to, by the logits of a router, and with which weights: the largest logits, the first among
// equals. A workgroup per row takes them one after the other. The result holds the experts of all pairs of a row and an
// expert, in the order of rows, then of experts; behind them the weights of the pairs, as bits. Shares 1 KiB.
//
// As `choose` of backend/cpu/experts.rs.

const THREADS: u32 = 64u;
const NONE: u32 = 0xffffffffu;
const NOT_A_NUMBER: u32 = 0x7fc00000u;

struct Parameters {
    experts: u32,
    rows: u32,
    top: u32,
    sigmoid: u32, // else a softmax
    renormalise: u32,
    scale: f32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<u32>;
@group(0) @binding(1) var<storage, read> logits: array<f32>;

var<workgroup> keys: array<u32, THREADS>;
var<workgroup> columns: array<u32, THREADS>;
var<workgroup> sums: array<f32, THREADS>;
var<workgroup> wrongs: array<u32, THREADS>;

// Numbers in the order of floats.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

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
    let start = row * parameters.experts;
    let pairs = parameters.rows * parameters.top;
    let own = row * parameters.top;
    var last_key = 0xffffffffu;
    var last_column = NONE;
    var largest = 0.0;
    for (var slot = 0u; slot < parameters.top; slot++) {
        var key = 0u;
        var best = NONE;
        for (var column = thread; column < parameters.experts; column += THREADS) {
            let found = key_of(logits[start + column]);
            let left = slot == 0u || found < last_key || (found == last_key && column > last_column);
            if left && (best == NONE || found > key) {
                key = found;
                best = column;
            }
        }
        workgroupBarrier(); // the slot before has been read
        keys[thread] = key;
        columns[thread] = best;
        for (var half = THREADS / 2u; half > 0u; half /= 2u) {
            workgroupBarrier();
            if thread < half {
                let other = columns[thread + half];
                let better = keys[thread + half] > keys[thread] || (keys[thread + half] == keys[thread] && other < columns[thread]);
                if other != NONE && (columns[thread] == NONE || better) {
                    keys[thread] = keys[thread + half];
                    columns[thread] = other;
                }
            }
        }
        workgroupBarrier();
        last_key = keys[0];
        last_column = columns[0];
        let logit = logits[start + last_column];
        if slot == 0u {
            largest = logit;
        }
        if thread == 0u {
            output[own + slot] = last_column;
            output[pairs + own + slot] = bitcast<u32>(logit);
        }
    }
    var sum = 0.0;
    var wrong = 0u;
    for (var column = thread; column < parameters.experts; column += THREADS) {
        let logit = logits[start + column];
        sum += exp(logit - largest);
        // compilers may think that x != x is never true
        wrong |= select(0u, 1u, (bitcast<u32>(logit) & 0x7fffffffu) > 0x7f800000u);
    }
    sums[thread] = sum;
    wrongs[thread] = wrong;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if thread < half {
            sums[thread] += sums[thread + half];
            wrongs[thread] |= wrongs[thread + half];
        }
    }
    if thread != 0u {
        return;
    }
    var total = 0.0;
    for (var slot = own; slot < own + parameters.top; slot++) {
        let logit = bitcast<f32>(output[pairs + slot]);
        var weight = exp(logit - largest) / sums[0];
        if parameters.sigmoid == 1u {
            weight = sigmoid(logit);
        }
        total += weight;
        output[pairs + slot] = bitcast<u32>(weight);
    }
    for (var slot = own; slot < own + parameters.top; slot++) {
        var weight = bitcast<f32>(output[pairs + slot]);
        if parameters.renormalise == 1u {
            weight /= total;
        }
        weight *= parameters.scale;
        // into the order of experts, among those before
        let expert = output[slot];
        var to = slot;
        while to > own && output[to - 1u] > expert {
            output[to] = output[to - 1u];
            output[pairs + to] = output[pairs + to - 1u];
            to--;
        }
        output[to] = expert;
        output[pairs + to] = select(bitcast<u32>(weight), NOT_A_NUMBER, wrongs[0] != 0u);
    }
}
