// Puts pairs of a row and an expert into the order of experts. The result holds where the pairs of each expert begin, and their
// number; then the pairs in that order; then the place of each pair in it. A workgroup per expert counts the pairs of
// experts before, then places its own in their order. Shares 1 KiB.

const THREADS: u32 = 256u;

struct Parameters {
    experts: u32,
    pairs: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<u32>;
@group(0) @binding(1) var<storage, read> chosen: array<u32>;

var<workgroup> counts: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(local_invocation_index) thread: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let expert = group.y * groups.x + group.x;
    if expert >= parameters.experts {
        return; // all threads of the workgroup alike
    }
    var before = 0u;
    for (var pair = thread; pair < parameters.pairs; pair += THREADS) {
        before += select(0u, 1u, chosen[pair] < expert);
    }
    counts[thread] = before;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if thread < half {
            counts[thread] += counts[thread + half];
        }
    }
    workgroupBarrier();
    var next = counts[0];
    if thread == 0u {
        output[expert] = next;
        output[parameters.experts] = parameters.pairs; // from all workgroups the same
    }
    let order = parameters.experts + 1u;
    let places = order + parameters.pairs;
    for (var first = 0u; first < parameters.pairs; first += THREADS) {
        let pair = first + thread;
        var own = 0u;
        if pair < parameters.pairs {
            own = select(0u, 1u, chosen[pair] == expert);
        }
        workgroupBarrier(); // what was counted before has been read
        counts[thread] = own;
        // becomes the sum of all up to each
        for (var step = 1u; step < THREADS; step *= 2u) {
            workgroupBarrier();
            var sum = counts[thread];
            if thread >= step {
                sum += counts[thread - step];
            }
            workgroupBarrier();
            counts[thread] = sum;
        }
        workgroupBarrier();
        if own == 1u {
            let place = next + counts[thread] - 1u;
            output[order + place] = pair;
            output[places + pair] = place;
        }
        next += counts[THREADS - 1u];
    }
}
