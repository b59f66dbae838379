// Cuts the rows of each expert into parts of `tile` rows: the expert of each part, its first row, and one more than the
// expert's last row. There is room for as many parts as there can be; those that there are not are empty. A workgroup per
// expert counts the parts of experts before. Shares 256 bytes.

const THREADS: u32 = 64u;

struct Parameters {
    experts: u32,
    tile: u32,
    room: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<u32>;
@group(0) @binding(1) var<storage, read> grouped: array<u32>; // begins with where the rows of each expert begin

var<workgroup> counts: array<u32, THREADS>;

fn parts_of(expert: u32) -> u32 {
    return (grouped[expert + 1u] - grouped[expert] + parameters.tile - 1u) / parameters.tile;
}

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
    for (var other = thread; other < expert; other += THREADS) {
        before += parts_of(other);
    }
    counts[thread] = before;
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if thread < half {
            counts[thread] += counts[thread + half];
        }
    }
    workgroupBarrier();
    let first = counts[0];
    let own = parts_of(expert);
    for (var part = thread; part < own; part += THREADS) {
        let place = 3u * (first + part);
        output[place] = expert;
        output[place + 1u] = grouped[expert] + part * parameters.tile;
        output[place + 2u] = grouped[expert + 1u];
    }
    if expert == parameters.experts - 1u {
        for (var place = 3u * (first + own) + thread; place < 3u * parameters.room; place += THREADS) {
            output[place] = 0u;
        }
    }
}
