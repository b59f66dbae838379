// Attention of few query rows, as when one token is generated: a workgroup per row and head.
//
// Its 128 threads take a key each for the scores; for the outputs groups of threads take a column each and share the keys
// among them. Running softmax over 128 keys at a time, in f32. Shares HEAD * 4 bytes + 4.5 KiB.

@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;

const COLUMNS: u32 = (HEAD + THREADS - 1u) / THREADS; // columns of a thread
const TEAMS: u32 = max(1u, THREADS / HEAD); // threads that share a column

var<workgroup> query: array<f32, HEAD>;
var<workgroup> weights: array<f32, THREADS>;
var<workgroup> parts: array<array<f32, COLUMNS>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(thread: Thread, @builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    let head = group.y;
    let width = parameters.heads / parameters.sharing * HEAD;
    let offset = head / parameters.sharing * HEAD;
    let sight = sight_of(row);
    let start = (row * parameters.heads + head) * HEAD;
    for (var column = thread.index; column < HEAD; column += THREADS) {
        query[column] = q[start + column];
    }
    let team = thread.index / min(HEAD, THREADS);
    let own = thread.index % min(HEAD, THREADS);
    var most = LOWEST;
    var total = 0.0;
    var sums: array<f32, COLUMNS>;
    for (var j = 0u; j < COLUMNS; j++) {
        sums[j] = 0.0;
    }
    for (var first = sight.x; first < sight.y; first += THREADS) {
        workgroupBarrier(); // the query is there, and the weights before have been read
        let key = first + thread.index;
        let seen = key < parameters.keys && sees(sight, key);
        var score = LOWEST;
        if seen {
            var product = 0.0;
            let at = key * width + offset;
            for (var column = 0u; column < HEAD; column++) {
                product += query[column] * k[at + column];
            }
            score = bent(product);
        }
        let now = max(most, largest_of_all(thread, score));
        let faded = exp2(most - now);
        most = now;
        total *= faded;
        var weight = 0.0;
        if seen {
            weight = exp2(score - now);
        }
        total += weight;
        weights[thread.index] = weight;
        workgroupBarrier();
        let count = min(THREADS, sight.y - first);
        for (var j = 0u; j < COLUMNS; j++) {
            let column = own + j * THREADS;
            sums[j] *= faded;
            if column < HEAD && team < TEAMS {
                for (var other = team; other < count; other += TEAMS) {
                    sums[j] += weights[other] * v[(first + other) * width + offset + column];
                }
            }
        }
    }
    let whole = sum_of_all(thread, vec4(total, 0.0, 0.0, 0.0)).x;
    let factor = select(0.0, 1.0 / whole, whole != 0.0); // a row that sees nothing gives zeros
    parts[thread.index] = sums;
    workgroupBarrier();
    if team == 0u {
        for (var j = 0u; j < COLUMNS; j++) {
            let column = own + j * THREADS;
            if column < HEAD {
                var sum = parts[own][j];
                for (var other = 1u; other < TEAMS; other++) {
                    sum += parts[other * HEAD + own][j];
                }
                output[start + column] = sum * factor;
            }
        }
    }
}
