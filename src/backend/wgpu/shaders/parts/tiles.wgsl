// Which part of a product a workgroup computes where all rows meet the same matrix. Constants: TILE, the rows of a part.

struct Part {
    top: u32, // the first row
    end: u32, // one more than the last row that belongs to the matrix
    matrix: u32, // added to a column of the result, gives its row of W in this buffer; wraps around
    to: u32, // added to a column, gives the column of the result
    bias: u32, // added to a column of the result, gives the place of its bias
}

fn part_of(number: u32) -> Part {
    return Part(number * TILE, parameters.rows, 0u, parameters.first, 0u);
}

// Columns to go through.
fn columns() -> u32 {
    return parameters.columns;
}
