// A weight in f16, four values at a time; its rows are filled up with zeros to a multiple of four. Converted by integer
// operations: devices may round the smallest numbers to zero in `unpack2x16float`.

alias Packed = vec2<u32>;

fn weight_quad(place: u32) -> vec4<f32> {
    let pairs = weight[place];
    let halves = vec4(pairs.x & 0xffffu, pairs.x >> 16u, pairs.y & 0xffffu, pairs.y >> 16u);
    let magnitude = halves & vec4(0x7fffu);
    // the exponent's bias is 15 in f16 and 127 in f32; below 1024 there is none, and the value is magnitude * 2^-24
    let normal = bitcast<vec4<f32>>((magnitude << vec4(13u)) + vec4(112u << 23u));
    let tiny = vec4<f32>(magnitude) * 5.9604644775390625e-8;
    // all bits of the exponent set: infinite, or not a number
    let endless = bitcast<vec4<f32>>((magnitude << vec4(13u)) | vec4(0x7f800000u));
    let value = select(select(normal, endless, magnitude >= vec4(0x7c00u)), tiny, magnitude < vec4(1024u));
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(value) | ((halves & vec4(0x8000u)) << vec4(16u)));
}
