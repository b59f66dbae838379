// Which part of a product a workgroup computes where rows meet the matrices of their experts: W holds rows of all matrices,
// one below the other, and `starts` says where the rows of each expert begin. Constants: TILE, the rows of a part.

@group(0) @binding(5) var<storage, read> starts: array<u32>;

struct Part {
    top: u32, // the first row
    end: u32, // one more than the last row that belongs to the matrix
    matrix: u32, // added to a column of the result, gives its row of W in this buffer; wraps around
    to: u32, // added to a column, gives the column of the result
    bias: u32, // added to a column of the result, gives the place of its bias
}

// An expert's last part may have fewer rows, so there are as many parts more than rows fill as there are experts, at most;
// those beyond are empty.
fn part_of(number: u32) -> Part {
    var left = number;
    for (var expert = 0u; expert < parameters.experts; expert++) {
        let first = starts[expert];
        let end = starts[expert + 1u];
        let parts = (end - first + TILE - 1u) / TILE;
        if left < parts {
            let matrix = expert * parameters.stride;
            return Part(first + left * TILE, end, matrix - parameters.first, 0u, matrix);
        }
        left -= parts;
    }
    return Part(0u, 0u, 0u, 0u, 0u);
}

// Columns to go through; not all of them need be in this buffer.
fn columns() -> u32 {
    return parameters.stride;
}
