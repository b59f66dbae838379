// A weight in f16, four values at a time; its rows are filled up with zeros to a multiple of four. For devices that know
// the type.

alias Packed = vec4<f16>;

fn weight_quad(place: u32) -> vec4<f32> {
    return vec4<f32>(weight[place]);
}
