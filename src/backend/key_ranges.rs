//! Visible keys, query row by query row.

use std::ops::Range;

/// Which keys every query row sees: ascending, disjoint, non-empty ranges of key rows per query row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRanges {
    /// Where the ranges of each row end in `ranges`; they begin where those of the row before end.
    ends: Vec<usize>,
    ranges: Vec<Range<usize>>,
}

impl KeyRanges {
    /// No query rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the next query row, which sees every key row that lies in at least one of `ranges`.
    ///
    /// Empty ranges are dropped; ranges that touch or overlap become one, and any order will do.
    pub fn push(&mut self, ranges: impl IntoIterator<Item = Range<usize>>) {
        let first = self.ranges.len();
        self.ranges.extend(ranges.into_iter().filter(|range| !range.is_empty()));
        if !self.ranges[first..].is_sorted_by_key(|range| range.start) {
            self.ranges[first..].sort_unstable_by_key(|range| range.start);
        }
        let mut last = first;
        for next in first + 1..self.ranges.len() {
            let range = self.ranges[next].clone();
            if range.start <= self.ranges[last].end {
                self.ranges[last].end = range.end.max(self.ranges[last].end);
            } else {
                last += 1;
                self.ranges[last] = range;
            }
        }
        self.ranges.truncate(last + 1); // `last` stands at a range, or there are none from `first` on
        self.ends.push(self.ranges.len());
    }

    /// The number of query rows.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// What query row `index` sees; nothing beyond the last row.
    pub fn row(&self, index: usize) -> &[Range<usize>] {
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        self.ranges.get(start.unwrap_or(0)..end).unwrap_or_default()
    }

    /// One more than the last key row that any query row sees; 0 if none sees any.
    pub fn reach(&self) -> usize {
        (0..self.rows())
            .filter_map(|row| self.row(row).last())
            .map(|range| range.end)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::reversed_empty_ranges, clippy::single_range_in_vec_init)]

    use super::*;

    #[test]
    fn ranges_are_brought_into_order() {
        let mut keys = KeyRanges::new();
        assert_eq!((keys.rows(), keys.reach()), (0, 0));
        keys.push([]);
        keys.push([3..3, 5..2]);
        keys.push([0..2, 2..4, 6..7]);
        keys.push([]);
        keys.push([8..9, 1..5, 0..2, 4..4, 3..4]);
        keys.push([2..3]);
        keys.push([0..9, 1..2, 5..9]);
        assert_eq!(keys.rows(), 7);
        let rows: Vec<_> = (0..9).map(|row| keys.row(row).to_vec()).collect();
        let expected = vec![
            vec![],
            vec![],
            vec![0..4, 6..7],
            vec![],
            vec![0..5, 8..9],
            vec![2..3],
            vec![0..9],
            vec![],
            vec![],
        ];
        assert_eq!(rows, expected);
        assert_eq!(keys.reach(), 9);
    }
}
