// Puts together what `attention_row.wgsl` found for parts of the keys: per row, head and part HEAD sums of values, the largest
// score to which their weights refer, and the sum of the weights.

struct Parameters {
    count: u32,
    parts: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> found: array<f32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    let size = HEAD + 2u;
    let start = at / HEAD * parameters.parts * size;
    let column = at % HEAD;
    var most = found[start + HEAD];
    for (var part = 1u; part < parameters.parts; part++) {
        most = max(most, found[start + part * size + HEAD]);
    }
    var sum = 0.0;
    var whole = 0.0;
    for (var part = 0u; part < parameters.parts; part++) {
        let here = start + part * size;
        let factor = exp2(found[here + HEAD] - most);
        sum += found[here + column] * factor;
        whole += found[here + HEAD + 1u] * factor;
    }
    output[at] = sum * select(0.0, 1.0 / whole, whole != 0.0); // a row that sees nothing gives zeros
}
