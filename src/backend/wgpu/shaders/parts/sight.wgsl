// Which keys a query row sees, and the parameters and bindings of both attention kernels.

struct Parameters {
    rows: u32, // query rows
    keys: u32, // key rows
    heads: u32,
    sharing: u32, // query heads that read one key head
    sight: u32, // 0: all keys; 1: keys up to start + row; 2: ranges of a table
    start: u32,
    scale: f32,
    cap: f32, // scores are bent to cap tanh(score / cap); 0: they are not
    parts: u32, // workgroups that divide the keys of a row; used for few rows
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
// per query row the first key, one more than the last, and where its ranges begin and end in `ranges`
@group(0) @binding(4) var<storage, read> sights: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> ranges: array<vec2<u32>>;

const LOG2_E: f32 = 1.4426950408889634;
// below every score; infinity would give differences that are no numbers
const LOWEST: f32 = -3.0e38;

fn sight_of(row: u32) -> vec4<u32> {
    switch parameters.sight {
        case 0u: { return vec4(0u, parameters.keys, 0u, 0u); }
        case 1u: { return vec4(0u, min(parameters.start + row + 1u, parameters.keys), 0u, 0u); }
        default: { return sights[row]; }
    }
}

fn sees(sight: vec4<u32>, key: u32) -> bool {
    if key < sight.x || key >= sight.y {
        return false;
    }
    if sight.w - sight.z < 2u {
        return true; // one range, and the key lies in it
    }
    for (var at = sight.z; at < sight.w; at++) {
        if key >= ranges[at].x && key < ranges[at].y {
            return true;
        }
    }
    return false;
}

// The score as a power of two.
fn bent(product: f32) -> f32 {
    let score = product * parameters.scale;
    // `clamp` may make a number of what is none
    let wrong = (bitcast<u32>(score) & 0x7fffffffu) > 0x7f800000u;
    if parameters.cap > 0.0 && !wrong {
        // beyond 10 the result is 1 in f32, and tanh may overflow
        return parameters.cap * tanh(clamp(score / parameters.cap, -10.0, 10.0)) * LOG2_E;
    }
    return score * LOG2_E;
}
