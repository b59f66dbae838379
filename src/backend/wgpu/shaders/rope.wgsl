// Rotates the first 2 * pairs elements of each head by the angles of its row; the others pass through.

struct Parameters {
    count: u32,
    width: u32,
    head: u32,
    pairs: u32,
    interleaved: u32, // element 2i is paired with 2i + 1, else i with i + pairs
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> cosines: array<f32>;
@group(0) @binding(3) var<storage, read> sines: array<f32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    let pairs = parameters.pairs;
    let column = (at % parameters.width) % parameters.head;
    if column >= 2u * pairs {
        output[at] = x[at];
        return;
    }
    let interleaved = parameters.interleaved == 1u;
    let pair = select(column % pairs, column / 2u, interleaved);
    let second = select(column >= pairs, column % 2u == 1u, interleaved);
    let distance = select(pairs, 1u, interleaved);
    let angle = at / parameters.width * pairs + pair;
    if second {
        output[at] = x[at] * cosines[angle] + x[at - distance] * sines[angle];
    } else {
        output[at] = x[at] * cosines[angle] - x[at + distance] * sines[angle];
    }
}
