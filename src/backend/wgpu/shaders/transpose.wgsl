// Every row, read as a matrix [rows, columns], becomes its transpose [columns, rows].

struct Parameters {
    count: u32,
    rows: u32,
    columns: u32,
}

var<immediate> parameters: Parameters;

@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;

@compute @workgroup_size(256)
fn main(place: Place) {
    let at = element(place);
    if at >= parameters.count {
        return;
    }
    let size = parameters.rows * parameters.columns;
    let within = at % size;
    let column = within / parameters.rows;
    let row = within % parameters.rows;
    output[at] = x[at - within + row * parameters.columns + column];
}
