// Which part of a product a workgroup computes where rows meet the matrices of their experts: W holds rows of all matrices,
// one below the other, and `parts` says which rows belong together (parts.wgsl).

@group(0) @binding(5) var<storage, read> parts: array<u32>;

struct Part {
    top: u32, // the first row
    end: u32, // one more than the last row that belongs to the matrix
    matrix: u32, // added to a column of the result, gives its row of W in this buffer; wraps around
    to: u32, // added to a column, gives the column of the result
    bias: u32, // added to a column of the result, gives the place of its bias
}

fn part_of(number: u32) -> Part {
    let matrix = parts[3u * number] * parameters.stride;
    return Part(parts[3u * number + 1u], parts[3u * number + 2u], matrix - parameters.first, 0u, matrix);
}

// Columns to go through; not all of them need be in this buffer.
fn columns() -> u32 {
    return parameters.stride;
}
