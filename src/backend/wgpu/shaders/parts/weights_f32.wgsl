// A weight in f32, four values at a time; its rows are filled up with zeros to a multiple of four.

alias Packed = vec4<f32>;

fn weight_quad(place: u32) -> vec4<f32> {
    return weight[place];
}
