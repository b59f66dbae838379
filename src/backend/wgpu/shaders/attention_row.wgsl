// Attention of few query rows, as when one token is generated: a workgroup per row, head and share of the keys.
//
// Its 128 threads take a key each for the scores; for the outputs teams of threads take a four of columns each and divide
// the keys among them. Running softmax over 128 keys at a time, in f32. One row has few heads and may see many keys, so the
// keys are cut into parts that run side by side (as in "Flash-Decoding", T. Dao et al., 2023), and
// `attention_join.wgsl` puts their results together. Shares HEAD * 4 bytes + 4.5 KiB.

const TEAMS: u32 = THREADS / HEAD_QUADS; // at least 2, heads having 256 elements at most

var<workgroup> query: array<vec4<f32>, HEAD_QUADS>;
var<workgroup> weights: array<f32, THREADS>;
var<workgroup> sums: array<vec4<f32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(thread: Thread, @builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    let head = group.y;
    let part = group.z;
    let key_head = head / parameters.sharing;
    let sight = sight_of(row);
    // this workgroup's share of the keys that the row may see
    let share = (max(sight.y, sight.x) - sight.x + parameters.parts - 1u) / parameters.parts;
    let begin = sight.x + part * share;
    let end = min(min(begin + share, sight.y), parameters.keys);
    if thread.index < HEAD_QUADS {
        query[thread.index] = query_quad(row, head, thread.index);
    }
    let team = thread.index / HEAD_QUADS;
    let quad = thread.index % HEAD_QUADS;
    var most = LOWEST;
    var total = 0.0;
    var sum = vec4(0.0);
    for (var first = begin; first < end; first += THREADS) {
        workgroupBarrier(); // the query is there, and the weights before have been read
        let key = first + thread.index;
        let seen = key < end && sees(sight, key);
        var score = LOWEST;
        if seen {
            var product = vec4(0.0);
            for (var at = 0u; at < HEAD_QUADS; at++) {
                product += query[at] * key_quad(key, key_head, at);
            }
            score = bent((product.x + product.y) + (product.z + product.w));
        }
        let now = max(most, largest_of_all(thread, score));
        let faded = exp2(most - now);
        most = now;
        var weight = 0.0;
        if seen {
            weight = exp2(score - now);
        }
        total = total * faded + weight;
        weights[thread.index] = weight;
        workgroupBarrier();
        sum *= faded;
        if team < TEAMS {
            let count = min(THREADS, end - first);
            for (var other = team; other < count; other += TEAMS) {
                sum += weights[other] * value_quad(first + other, key_head, quad);
            }
        }
    }
    let whole = sum_of_all(thread, vec4(total, 0.0, 0.0, 0.0)).x;
    sums[thread.index] = sum;
    workgroupBarrier();
    if team != 0u {
        return;
    }
    for (var other = 1u; other < TEAMS; other++) {
        sum += sums[other * HEAD_QUADS + quad];
    }
    var start = (row * parameters.heads + head) * HEAD;
    if parameters.parts == 1u {
        sum *= select(0.0, 1.0 / whole, whole != 0.0); // a row that sees nothing gives zeros
    } else {
        start = ((row * parameters.heads + head) * parameters.parts + part) * (HEAD + 2u);
        if quad == 0u {
            output[start + HEAD] = most;
            output[start + HEAD + 1u] = whole;
        }
    }
    for (var j = 0u; j < 4u; j++) {
        let column = quad * 4u + j;
        if column < HEAD {
            output[start + column] = sum[j];
        }
    }
}
