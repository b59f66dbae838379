// A weight in bf16, four values at a time; its rows are filled up with zeros to a multiple of four. bf16 is the upper half
// of an f32, so the conversion is exact.

alias Packed = vec2<u32>;

fn weight_quad(place: u32) -> vec4<f32> {
    let pairs = weight[place];
    return bitcast<vec4<f32>>(vec4(pairs.x << 16u, pairs.x & 0xffff0000u, pairs.y << 16u, pairs.y & 0xffff0000u));
}
