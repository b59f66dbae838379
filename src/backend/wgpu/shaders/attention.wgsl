// Attention of many query rows: softmax(scale q kᵀ) v per head, without ever storing the scores.
//
// A workgroup of 8 x 16 threads takes 64 query rows of one head and walks over the keys that any of them sees, 32 at a time
// (running softmax of "FlashAttention-2", T. Dao, 2023). A thread computes the scores of 4 rows, at distances of 16, with 4
// neighbouring keys, and a four of the outputs' columns in every 32 of them. Tiles of queries, keys and values go through
// shared memory in pieces of 16 or 32 columns, so any size of head fits: 16 KiB in all. Sums are in f32.

const ROWS: u32 = 64u; // query rows of a workgroup
const KEYS: u32 = 32u; // keys at a time
const QUADS: u32 = 4u; // fours of a piece of queries and keys
const PIECES: u32 = (HEAD_QUADS + 7u) / 8u; // pieces of 32 columns of the outputs

var<workgroup> staged: array<vec4<f32>, 384>; // queries 0.. and keys 256.., or values
var<workgroup> shares: array<vec4<f32>, 512>; // e^(score - most), 32 keys for each row
// of 8 threads for each row; no vectors, since several threads must not write into one
var<workgroup> maxima: array<f32, 512>;
var<workgroup> reach: vec2<u32>;

// Rows lie 64 bytes apart: without the exchange threads would ask the same banks.
fn slot(row: u32, quad: u32) -> u32 {
    return row * QUADS + (quad ^ ((row >> 1u) & 3u));
}

// A four of the shares of a row.
fn share(row: u32, quad: u32) -> u32 {
    return row * 8u + (quad ^ (row & 7u));
}

@compute @workgroup_size(8, 16)
fn main(
    @builtin(local_invocation_id) thread: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    @builtin(workgroup_id) group: vec3<u32>,
) {
    let top = group.x * ROWS;
    let head = group.y;
    let key_head = head / parameters.sharing;
    var sights: array<vec4<u32>, 4>;
    var most: array<f32, 4>;
    var total: array<f32, 4>;
    var sums: array<array<vec4<f32>, PIECES>, 4>;
    for (var i = 0u; i < 4u; i++) {
        let row = top + thread.y + 16u * i;
        sights[i] = vec4(0u);
        if row < parameters.rows {
            sights[i] = sight_of(row);
        }
        most[i] = LOWEST;
        total[i] = 0.0;
        for (var piece = 0u; piece < PIECES; piece++) {
            sums[i][piece] = vec4(0.0);
        }
    }
    if index == 0u {
        var keys = vec2(0xffffffffu, 0u);
        for (var row = top; row < min(top + ROWS, parameters.rows); row++) {
            let sight = sight_of(row);
            if sight.y > sight.x {
                keys = vec2(min(keys.x, sight.x), max(keys.y, sight.y));
            }
        }
        reach = keys;
    }
    let keys = workgroupUniformLoad(&reach);

    for (var first = keys.x; first < keys.y; first += KEYS) {
        var scores: array<vec4<f32>, 4>;
        for (var i = 0u; i < 4u; i++) {
            scores[i] = vec4(0.0);
        }
        for (var column = 0u; column < HEAD_QUADS; column += QUADS) {
            workgroupBarrier(); // what was staged before has been read
            for (var at = index; at < (ROWS + KEYS) * QUADS; at += 128u) {
                let line = at / QUADS;
                let quad = column + at % QUADS;
                var value = vec4(0.0);
                if line < ROWS {
                    if quad < HEAD_QUADS && top + line < parameters.rows {
                        value = query_quad(top + line, head, quad);
                    }
                    staged[slot(line, at % QUADS)] = value;
                } else {
                    let key = line - ROWS;
                    if quad < HEAD_QUADS && first + key < parameters.keys {
                        value = key_quad(first + key, key_head, quad);
                    }
                    // key 4 x + j is the j-th of thread x, and lies where its neighbours' j-th lie
                    staged[256u + slot(key % 4u * 8u + key / 4u, at % QUADS)] = value;
                }
            }
            workgroupBarrier();
            for (var quad = 0u; quad < QUADS; quad++) {
                let k0 = staged[256u + slot(thread.x, quad)];
                let k1 = staged[256u + slot(8u + thread.x, quad)];
                let k2 = staged[256u + slot(16u + thread.x, quad)];
                let k3 = staged[256u + slot(24u + thread.x, quad)];
                for (var i = 0u; i < 4u; i++) {
                    let value = staged[slot(thread.y + 16u * i, quad)];
                    scores[i] += vec4(dot(value, k0), dot(value, k1), dot(value, k2), dot(value, k3));
                }
            }
        }

        // the largest score of every row, over the 8 threads that have some of it
        for (var i = 0u; i < 4u; i++) {
            var own = LOWEST;
            for (var j = 0u; j < 4u; j++) {
                let score = select(LOWEST, bent(scores[i][j]), sees(sights[i], first + 4u * thread.x + j));
                scores[i][j] = score;
                own = max(own, score);
            }
            maxima[(thread.y + 16u * i) * 8u + thread.x] = own;
        }
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {
            let row = thread.y + 16u * i;
            var now = most[i];
            for (var other = 0u; other < 8u; other++) {
                now = max(now, maxima[row * 8u + other]);
            }
            let faded = exp2(most[i] - now);
            var weights = vec4(0.0);
            for (var j = 0u; j < 4u; j++) {
                // what is not seen counts nothing, even where nothing is seen at all
                if sees(sights[i], first + 4u * thread.x + j) {
                    weights[j] = exp2(scores[i][j] - now);
                }
            }
            shares[share(row, thread.x)] = weights;
            total[i] = total[i] * faded + (weights.x + weights.y) + (weights.z + weights.w);
            for (var piece = 0u; piece < PIECES; piece++) {
                sums[i][piece] *= faded;
            }
            most[i] = now;
        }

        for (var piece = 0u; piece < PIECES; piece++) {
            workgroupBarrier(); // what was staged before has been read, and all shares are written
            for (var at = index; at < KEYS * 8u; at += 128u) {
                let key = first + at / 8u;
                let quad = piece * 8u + at % 8u;
                var value = vec4(0.0);
                if quad < HEAD_QUADS && key < parameters.keys {
                    value = value_quad(key, key_head, quad);
                }
                staged[at] = value;
            }
            workgroupBarrier();
            for (var quad = 0u; quad < 8u; quad++) {
                let v0 = staged[quad * 32u + thread.x];
                let v1 = staged[quad * 32u + 8u + thread.x];
                let v2 = staged[quad * 32u + 16u + thread.x];
                let v3 = staged[quad * 32u + 24u + thread.x];
                for (var i = 0u; i < 4u; i++) {
                    let weights = shares[share(thread.y + 16u * i, quad)];
                    sums[i][piece] += weights.x * v0 + weights.y * v1 + weights.z * v2 + weights.w * v3;
                }
            }
        }
    }

    // every thread has the total of its own keys
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        maxima[(thread.y + 16u * i) * 8u + thread.x] = total[i];
    }
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        let line = thread.y + 16u * i;
        var whole = 0.0;
        for (var other = 0u; other < 8u; other++) {
            whole += maxima[line * 8u + other];
        }
        let factor = select(0.0, 1.0 / whole, whole != 0.0); // a row that sees nothing gives zeros
        let row = top + line;
        for (var piece = 0u; piece < PIECES; piece++) {
            for (var j = 0u; j < 4u; j++) {
                let column = (piece * 8u + thread.x) * 4u + j;
                if row < parameters.rows && column < HEAD {
                    output[(row * parameters.heads + head) * HEAD + column] = sums[i][piece][j] * factor;
                }
            }
        }
    }
}
