//! The size policy `pinpoints`: a picture is fitted into one canvas of a list, and the canvas is cut into tiles.
//!
//! This is the "anyres" tiling of `LlavaNextImageProcessor` and `LlavaOnevisionImageProcessor`:
//! `select_best_resolution` and `get_patch_output_size` (`image_processing_utils.py`), `divide_to_patches`
//! (`image_transforms.py`); then, on the features, `get_anyres_image_grid_shape`, `unpad_image` and
//! `pack_image_features` of the models, which the processors repeat in `_get_unpadded_features`.
//!
//! 1. *Choice.* With s = min(W/w, H/h), a pinpoint H×W makes use of `min(int(w·s) · int(h·s), w·h)` pixels of an image
//!    h×w. Most use wins, then the least waste (`H·W − use`), then the first in the list.
//! 2. *Views.* The image alone in a square tile, then the tiles of the canvas, row by row: `tiles` in all.
//! 3. *Features.* The tiles' cells form one grid of the canvas. `crop` takes away the rows or columns that are padding,
//!    as many on both sides.
//! 4. *Shrinking.* Let r = √(rows·cols / (N·n²)) with n² cells in a tile and N = `shrink_over`. Beyond 1.1 the grid
//!    becomes ⌊rows/r⌋ × ⌊cols/r⌋ (bilinearly). N = 0 stands for models that never do it.
//!
//! # What surprises
//!
//! * **The picture that costs most need not fill a canvas.** With 36 pinpoints up to 2304 px and N = 9 the best pinpoint
//!   alone gives 8154 features; 1152×1380 cropped to 98×81 cells stays just below the threshold and gives 8765.
//! * **Tall is dearer than wide** where each row ends in a token: pinpoints are pairs of height and width.
//! * **The parity survives.** Both sides lose the same number of rows, so one row of padding may stay; and of an odd
//!   grid always one row is left, of an even one possibly none: 1×4000 leaves only the 576 cells of the first view.
//!   With columns it is the other way round: rows of no columns stay rows, and each still ends in its newline.
//! * **The choice truncates, the crop rounds to 7 digits first.** `int(w·(W/w))` may be W − 1, and pinpoints are chosen
//!   by such accidents. In the crop, a product within 5e-8 of an integer is that integer: 110×352 costs 1360, not 1262.
//! * **`rows // r` is Python's floor of a float division**, which is not the floor of the rounded quotient.
//! * **Some use is not needed.** If a side is scaled below 1 px everywhere, the use is 0 for all, and the least canvas
//!   is chosen. Only an empty list leaves no choice.
//! * **A pinpoint that is no multiple of the tile** takes part in the choice, but the images that choose it are refused:
//!   there are ⌈H/T⌉ · ⌈W/T⌉ tiles, the model lays out ⌊H/T⌋ · ⌊W/T⌋ and fails. (The processor counts the latter; if
//!   one is 0, it may divide by zero.) So are images whose grid shrinks to no row or column: the processor counts 0, the
//!   model's interpolation fails.
//!
//! # Domain, and why [`SizePolicy::maximum`] is exact
//!
//! Images are h×w, p = H×W is a pinpoint, n cells fit in a tile of T px. The *rank* of a pinpoint is its area, then its
//! place in the list; less is preferred.
//!
//! 1. The use of a pinpoint never falls when its s grows: a double division, product or truncation is monotone.
//! 2. *Dominance.* So if q has a lesser rank than p and no lesser s for an image, p is not chosen: either q's use is
//!    larger, or it is the same and q wastes less or comes first. If W limits p for an image, its s is W/w; then q has
//!    no lesser s iff W' ≥ W and H' ≥ η, where η = h·W/w is the image's height on the canvas. Hence p is only chosen for
//!    η > g, the largest H' of all q of lesser rank with W' ≥ W. (Doubles respect these comparisons: they are monotone.)
//! 3. *Canonical images.* An image that fits p at s = 1, that is W wide and at most H high, chooses p if and only if
//!    h > g. Those that contain it all use w·h, and p has the least rank of them unless h ≤ g; those that do not contain
//!    it scale a side to at most one pixel less (`w·(W'/w)` is below W' + 1), so their use is less.
//! 4. *Crop.* The uncropped grid is N×M = n·H/T × n·W/T cells. Doubles compare w/h with M/N as integers would, since two
//!    different quotients of integers below 2^16 differ by more than 2^-32. `int(round(h·(M/w), 7))` is ⌊h·M/w⌋: either
//!    the exact quotient is an integer, and the rounding repairs the product, or it is 1/65 535 away from the next.
//!    That floor is ⌊η·n/T⌋, so a grid cropped to r rows (r of N's parity, below N) comes from exactly the η in
//!    ((r − 1)·T/n, (r + 1)·T/n), the lower end included, and r = 0 from η < T/n.
//! 5. Therefore the canonical image of an *integer* η of that interval above g reaches r, and without any η above g
//!    nothing does. The interval is at least two pixels long (T/n ≥ 1), so the two conditions differ for at most one r
//!    per pinpoint and direction: the lowest, if all its η above g lie strictly between g and g + 1. That takes tiles of
//!    one-pixel cells, or pinpoints that are no multiples of the tile.
//! 6. The uncropped grid of p is reached by the image H×W itself, unless the same pinpoint occurs earlier.
//! 7. Turning image and pinpoints turns everything above, so limits by H are alike. (On a tie both limits agree.)
//!
//! So the domain is one chain of grids per pinpoint and direction, known up to one grid each. For that one, some images
//! slightly larger than the pinpoint are tried. They decide the matter if g = 0 and no pinpoint is 1 px thin: an image
//! wider than W and less than 1 px high on p makes no use of p, so it chooses p only if nothing is of any use to it and
//! p has the least rank of all, and then the image of 1 px by the longest side does so too. If g > 0, it stays unclear
//! whether an image exists when none is found, and the result is not `exact` if that grid's value exceeds all others.
//! It is the smallest grid of its chain, so this concerns falling formulas or shrinking only.
//!
//! Along a chain the shrunk grid is monotone: r grows with the grid, so the untouched side falls; the cropped side
//! divided by r grows relatively by more than 2^-17 per step, against roundings of 2^-52. Hence a piece of a chain lies
//! between the grids of its ends, and the search of `bound` is sound. If the formula rises and the
//! piece is not shrunk, its first grid is its largest. Grids that shrink to nothing lie at the ends and are left out.
//! (The search has a budget, which only lists of some hundred pinpoints with thousands of cells exceed.)
//!
//! The witness of an uncropped grid is the pinpoint itself, of others the squarest canonical image.

use super::bound::{self, Leaf, Region, Verdict};
use super::{Formula, ImageSize, LONGEST_SIDE, Layout, Maximum, SizePolicy};
use crate::descriptor::expression::ExpressionError;

/// More pinpoints are refused; published lists have up to 36.
const MOST_PINPOINTS: usize = 4096;
/// Integers up to here are doubles.
const EXACT: u64 = 1 << 53;
/// A domain of at most so many layouts is sampled in full.
const SAMPLED_IN_FULL: usize = 10_000;
/// Otherwise about so many are taken.
const SAMPLES: usize = 2000;

use crate::descriptor::resize::PINPOINTS as NAMES;

/// The policy's parameters, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinpoints {
    /// Canvas sizes in the order of the file.
    list: Vec<ImageSize>,
    tile: u32,
    /// Cells per side of a tile.
    cells: u32,
    crop: bool,
    shrink_over: u32,
    /// The longest side of an image; a field so that tests can search small worlds exhaustively.
    longest: u32,
}

/// What becomes of the cells of one image's canvas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGrid {
    /// Rows of cells of the whole canvas.
    pub canvas_rows: u32,
    /// Columns of cells of the whole canvas.
    pub canvas_cols: u32,
    /// The first row that is kept.
    pub top: u32,
    /// The first column that is kept.
    pub left: u32,
    /// Rows that are kept, before shrinking.
    pub kept_rows: u32,
    /// Columns that are kept, before shrinking.
    pub kept_cols: u32,
    /// Rows that are emitted; fewer than `kept_rows` if the grid is shrunk.
    pub rows: u32,
    /// Columns that are emitted.
    pub cols: u32,
}

impl Pinpoints {
    /// Checks the parameters; the error is a sentence.
    ///
    /// `list` holds heights and widths in pixels, in the order of the file; `tile` is the side of a view in pixels and
    /// `cell` that of a patch; `crop` says whether padding is cut off again; `shrink_over` is the number of tiles
    /// beyond whose cells the grid is shrunk, 0 for never.
    ///
    /// Not every pinpoint has to be a multiple of the tile, but one has to.
    pub fn new(
        list: &[(u32, u32)],
        tile: u32,
        cell: u32,
        crop: bool,
        shrink_over: u32,
    ) -> Result<Self, String> {
        if tile == 0 || tile > LONGEST_SIDE {
            return Err(format!("a tile must be 1 to {LONGEST_SIDE} px, got {tile}"));
        }
        if cell == 0 || cell > tile {
            return Err(format!("a tile of {tile} px holds no cell of {cell} px"));
        }
        let cells = tile / cell;
        if list.is_empty() {
            return Err("the list of pinpoints is empty".to_owned());
        }
        if list.len() > MOST_PINPOINTS {
            let count = list.len();
            return Err(format!("{count} pinpoints are more than {MOST_PINPOINTS}"));
        }
        let list: Vec<_> =
            list.iter().map(|&(height, width)| ImageSize { width, height }).collect();
        let fits = |side: u32| (1..=LONGEST_SIDE).contains(&side);
        if let Some(size) = list.iter().find(|size| !fits(size.width) || !fits(size.height)) {
            return Err(format!("a side of the pinpoint {size} is not 1 to {LONGEST_SIDE} px"));
        }
        if !list
            .iter()
            .any(|size| size.width.is_multiple_of(tile) && size.height.is_multiple_of(tile))
        {
            return Err(format!("no pinpoint consists of whole tiles of {tile} px"));
        }
        if u64::from(shrink_over) * u64::from(cells) * u64::from(cells) > EXACT {
            return Err(format!("shrinking over {shrink_over} tiles is beyond exact arithmetic"));
        }
        Ok(Self { list, tile, cells, crop, shrink_over, longest: LONGEST_SIDE })
    }

    /// The side of a view in pixels.
    pub fn tile(&self) -> u32 {
        self.tile
    }

    /// The canvas that the image is fitted into.
    ///
    /// Refused are an empty image and one whose canvas is not made of whole tiles.
    pub fn canvas(&self, size: ImageSize) -> Result<ImageSize, String> {
        if size.width == 0 || size.height == 0 {
            return Err("a side is zero".to_owned());
        }
        let canvas = self.chosen(size).ok_or("there is no pinpoint")?;
        if canvas.width.is_multiple_of(self.tile) && canvas.height.is_multiple_of(self.tile) {
            Ok(canvas)
        } else {
            let tile = self.tile;
            Err(format!("the pinpoint {canvas} is chosen, which is not made of tiles of {tile} px"))
        }
    }

    /// `select_best_resolution` of the reference; the sides are not zero.
    fn chosen(&self, size: ImageSize) -> Option<ImageSize> {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let all = u64::from(size.width) * u64::from(size.height);
        let mut best = None::<(u64, u64, ImageSize)>;
        for &canvas in &self.list {
            let scale = (f64::from(canvas.width) / width).min(f64::from(canvas.height) / height);
            let used = ((width * scale) as u64 * (height * scale) as u64).min(all);
            // a scaled side is at most the canvas's
            let wasted = (u64::from(canvas.width) * u64::from(canvas.height)).saturating_sub(used);
            if best.is_none_or(|(most, least, _)| used > most || used == most && wasted < least) {
                best = Some((used, wasted, canvas));
            }
        }
        best.map(|(_, _, canvas)| canvas)
    }

    /// The size at which the image lies on its canvas: `get_patch_output_size` of the reference.
    ///
    /// Errors as [`Pinpoints::canvas`].
    pub fn fitted(&self, size: ImageSize) -> Result<ImageSize, String> {
        let canvas = self.canvas(size)?;
        let across = f64::from(canvas.width) / f64::from(size.width);
        let down = f64::from(canvas.height) / f64::from(size.height);
        Ok(if across < down {
            let height = (f64::from(size.height) * across).ceil();
            ImageSize { height: (height as u32).min(canvas.height), ..canvas }
        } else {
            let width = (f64::from(size.width) * down).ceil();
            ImageSize { width: (width as u32).min(canvas.width), ..canvas }
        })
    }

    /// The black borders `[left, top, right, bottom]` of the fitted image on its canvas, in pixels.
    ///
    /// Errors as [`Pinpoints::canvas`].
    pub fn borders(&self, size: ImageSize) -> Result<[u32; 4], String> {
        let (canvas, fitted) = (self.canvas(size)?, self.fitted(size)?);
        let (across, down) = (canvas.width - fitted.width, canvas.height - fitted.height);
        Ok([across / 2, down / 2, across - across / 2, down - down / 2])
    }

    /// What becomes of the cells of the image's canvas.
    ///
    /// Errors as [`Pinpoints::canvas`]; also refused is an image whose grid would shrink to nothing.
    pub fn feature_grid(&self, size: ImageSize) -> Result<FeatureGrid, String> {
        let canvas = self.canvas(size)?;
        let (canvas_rows, canvas_cols) = self.cells_of(canvas);
        let (rows, cols) = (f64::from(canvas_rows), f64::from(canvas_cols));
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let (mut top, mut left) = (0, 0);
        if self.crop {
            // what is left is at most the whole, see the module's fourth point
            if width / height > cols / rows {
                let kept = floor_after_7_digits(height * (cols / width)) as u32;
                top = canvas_rows.saturating_sub(kept) / 2;
            } else {
                let kept = floor_after_7_digits(width * (rows / height)) as u32;
                left = canvas_cols.saturating_sub(kept) / 2;
            }
        }
        let (kept_rows, kept_cols) = (canvas_rows - 2 * top, canvas_cols - 2 * left);
        let (rows, cols) = match self.shrunk(kept_rows, kept_cols) {
            None => (kept_rows, kept_cols),
            Some((rows, cols)) if rows > 0 && cols > 0 => (rows, cols),
            Some((rows, cols)) => {
                return Err(format!(
                    "the grid of {kept_rows}x{kept_cols} cells would shrink to {rows}x{cols}"
                ));
            }
        };
        Ok(FeatureGrid { canvas_rows, canvas_cols, top, left, kept_rows, kept_cols, rows, cols })
    }

    /// Rows and columns of cells of a canvas.
    fn cells_of(&self, canvas: ImageSize) -> (u32, u32) {
        (canvas.height / self.tile * self.cells, canvas.width / self.tile * self.cells)
    }

    /// By how much both sides of a grid shrink; `None` if it is not shrunk.
    fn ratio(&self, rows: u32, cols: u32) -> Option<f64> {
        let cells = u64::from(self.cells);
        let limit = u64::from(self.shrink_over) * cells * cells;
        if limit == 0 {
            return None;
        }
        let ratio = ((u64::from(rows) * u64::from(cols)) as f64 / limit as f64).sqrt();
        Some(ratio).filter(|&ratio| ratio > 1.1)
    }

    /// Rows and columns after shrinking, either possibly 0; `None` if the grid is not shrunk.
    fn shrunk(&self, rows: u32, cols: u32) -> Option<(u32, u32)> {
        let ratio = self.ratio(rows, cols)?;
        let side = |side: u32| floor_quotient(f64::from(side), ratio) as u32;
        Some((side(rows), side(cols)))
    }

    /// The layout of a grid of a canvas.
    fn layout_of(&self, canvas: ImageSize, rows: u32, cols: u32) -> Layout {
        let (down, across) = (canvas.height / self.tile, canvas.width / self.tile);
        // 65 535² + 1 is below 2^32
        let tiles = down * across + 1;
        let ImageSize { width, height } = canvas;
        Layout::new(
            &NAMES,
            [rows, cols, down, across, tiles, self.cells, self.cells, width, height],
        )
    }

    /// The canvases that some image gets, with what limits their crops.
    fn canvases(&self) -> Vec<Canvas> {
        let area = |size: ImageSize| u64::from(size.width) * u64::from(size.height);
        let of = |index: usize, size: ImageSize| {
            let mut hidden = (0, 0);
            for (other, &rival) in self.list.iter().enumerate() {
                if (area(rival), other) >= (area(size), index) {
                    continue;
                }
                if rival == size {
                    return None;
                }
                if rival.width >= size.width {
                    hidden.0 = hidden.0.max(rival.height);
                }
                if rival.height >= size.height {
                    hidden.1 = hidden.1.max(rival.width);
                }
            }
            let whole =
                size.width.is_multiple_of(self.tile) && size.height.is_multiple_of(self.tile);
            whole.then_some(Canvas { size, hidden_height: hidden.0, hidden_width: hidden.1 })
        };
        self.list.iter().enumerate().filter_map(|(index, &size)| of(index, size)).collect()
    }

    /// The whole domain in pieces, none of them partly shrunk.
    fn chains(&self) -> Vec<Chain<'_>> {
        let mut chains = Vec::new();
        for canvas in self.canvases() {
            for direction in [Direction::Rows, Direction::Cols] {
                let mut chain = Chain { policy: self, canvas, direction, first: 0, last: 0 };
                // the uncropped grid belongs to the first chain
                chain.first = u32::from(direction == Direction::Cols);
                chain.last = if self.crop { chain.most_pairs() } else { 0 };
                if chain.first > chain.last {
                    continue;
                }
                // the more is cut, the less is shrunk
                let end = chain.last + 1;
                let kept = first_where(chain.first, end, |pairs| {
                    let (rows, cols) = chain.kept(pairs);
                    self.ratio(rows, cols).is_none()
                });
                // of what is shrunk, one side falls and may end at nothing, the other rises and may begin there
                let side = |pairs: u32| match (direction, chain.emitted(pairs)) {
                    (Direction::Rows, (rows, cols)) | (Direction::Cols, (cols, rows)) => {
                        (rows, cols)
                    }
                };
                let start = first_where(chain.first, kept, |pairs| side(pairs).1 > 0);
                let stop = first_where(start, kept, |pairs| side(pairs).0 == 0);
                let pieces = [(start, stop), (kept, end)];
                chains.extend(
                    pieces
                        .into_iter()
                        .filter(|(start, end)| start < end)
                        .map(|(start, end)| Chain { first: start, last: end - 1, ..chain }),
                );
            }
        }
        chains
    }

    /// Whether an image reaches a grid which no canonical image reaches.
    fn search(&self, place: Place) -> Verdict {
        let chain = Chain {
            policy: self,
            canvas: place.canvas,
            direction: place.direction,
            first: place.pairs,
            last: place.pairs,
        };
        let (rows, cols) = chain.kept(place.pairs);
        let (along, hidden) = chain.sides();
        let doubled = (1..16).map(|times| u64::from(along) << times);
        let beyond = (1..=16).map(|more| u64::from(along + more));
        let longest = u64::from(self.longest);
        let tried = doubled.chain(beyond).chain([longest]).filter(|&side| side <= longest);
        let reached = tried
            .map(|side| {
                // the least that is more than `hidden` on the canvas
                let other = u64::from(hidden) * side / u64::from(along) + 1;
                let (side, other) = (side as u32, other.min(longest) as u32);
                match place.direction {
                    Direction::Rows => ImageSize { width: side, height: other },
                    Direction::Cols => ImageSize { width: other, height: side },
                }
            })
            .find(|&size| {
                self.canvas(size) == Ok(place.canvas.size)
                    && self
                        .feature_grid(size)
                        .is_ok_and(|grid| (grid.kept_rows, grid.kept_cols) == (rows, cols))
            });
        let thin = |pinpoint: &ImageSize| pinpoint.width.min(pinpoint.height) == 1;
        match reached {
            Some(size) => Verdict::Reached(size),
            // the longest image would have reached it
            None if hidden == 0 && !self.list.iter().any(thin) => Verdict::Never,
            None => Verdict::Unclear,
        }
    }
}

impl SizePolicy for Pinpoints {
    fn names(&self) -> &'static [&'static str] {
        &NAMES
    }

    fn layout(&self, size: ImageSize) -> Result<Layout, String> {
        let grid = self.feature_grid(size)?;
        Ok(self.layout_of(self.canvas(size)?, grid.rows, grid.cols))
    }

    fn maximum(&self, formula: &Formula<'_>) -> Result<Option<Maximum>, ExpressionError> {
        bound::maximum(formula, self.chains(), |place| self.search(place))
    }

    fn samples(&self) -> Vec<Layout> {
        let chains = self.chains();
        let count = |chain: &Chain<'_>| (chain.last - chain.first) as usize + 1;
        let total: usize = chains.iter().map(count).sum();
        let every = if total <= SAMPLED_IN_FULL { 1 } else { total.div_ceil(SAMPLES) };
        let mut layouts = Vec::new();
        for chain in chains {
            let last = chain.last;
            let regular = (chain.first..last).step_by(every);
            let leaves = regular.chain([last]).filter_map(|pairs| chain.leaf(pairs));
            layouts.extend(leaves.filter(|leaf| leaf.witness.is_ok()).map(|leaf| leaf.layout));
        }
        layouts
    }

    fn budget_kind(&self) -> &'static str {
        if self.crop {
            "dynamic"
        } else if self.canvases().len() == 1 {
            "fixed"
        } else {
            "per tile"
        }
    }
}

/// A canvas that some image gets.
#[derive(Debug, Clone, Copy)]
struct Canvas {
    size: ImageSize,
    /// Images limited by the width are this high or less on the canvas only if another canvas is preferred.
    hidden_height: u32,
    /// Images limited by the height are this wide or less on the canvas only if another canvas is preferred.
    hidden_width: u32,
}

/// What the crop cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Rows,
    Cols,
}

/// One cropped grid.
#[derive(Debug, Clone, Copy)]
struct Place {
    canvas: Canvas,
    direction: Direction,
    pairs: u32,
}

/// The grids of one canvas from which `first` to `last` pairs of rows or columns are cut; all shrunk or none.
#[derive(Debug, Clone, Copy)]
struct Chain<'a> {
    policy: &'a Pinpoints,
    canvas: Canvas,
    direction: Direction,
    first: u32,
    last: u32,
}

impl Chain<'_> {
    /// Rows or columns of the whole canvas, whichever are cut.
    fn whole(&self) -> u32 {
        let (rows, cols) = self.policy.cells_of(self.canvas.size);
        if self.direction == Direction::Rows { rows } else { cols }
    }

    /// The canvas's side that the image fills, and how much of the other one does not suffice.
    fn sides(&self) -> (u32, u32) {
        let Canvas { size, hidden_height, hidden_width } = self.canvas;
        match self.direction {
            Direction::Rows => (size.width, hidden_height),
            Direction::Cols => (size.height, hidden_width),
        }
    }

    /// The most pairs that any image loses.
    fn most_pairs(&self) -> u32 {
        let (tile, cells) = (u64::from(self.policy.tile), u64::from(self.policy.cells));
        let (whole, hidden) = (u64::from(self.whole()), u64::from(self.sides().1));
        // the least number for which (left + 1) · tile > hidden · cells; halving leaves it, or one more
        let left = hidden * cells / tile;
        (whole.saturating_sub(left) / 2) as u32
    }

    /// Rows and columns that remain without so many pairs.
    fn kept(&self, pairs: u32) -> (u32, u32) {
        let (rows, cols) = self.policy.cells_of(self.canvas.size);
        match self.direction {
            Direction::Rows => (rows - 2 * pairs, cols),
            Direction::Cols => (rows, cols - 2 * pairs),
        }
    }

    /// Rows and columns that are emitted, either possibly 0.
    fn emitted(&self, pairs: u32) -> (u32, u32) {
        let (rows, cols) = self.kept(pairs);
        self.policy.shrunk(rows, cols).unwrap_or((rows, cols))
    }

    fn leaf(&self, pairs: u32) -> Option<Leaf<Place>> {
        let (rows, cols) = self.kept(pairs);
        let (rows, cols) = match self.policy.shrunk(rows, cols) {
            None => (rows, cols),
            Some((rows, cols)) if rows > 0 && cols > 0 => (rows, cols),
            // refused
            Some(_) => return None,
        };
        let Self { policy, canvas, direction, .. } = *self;
        let layout = policy.layout_of(canvas.size, rows, cols);
        let witness = self.canonical(pairs).ok_or(Place { canvas, direction, pairs });
        Some(Leaf { layout, witness })
    }

    /// The squarest image of the canvas's own scale that loses so many pairs.
    fn canonical(&self, pairs: u32) -> Option<ImageSize> {
        if pairs == 0 {
            return Some(self.canvas.size);
        }
        let (tile, cells) = (u64::from(self.policy.tile), u64::from(self.policy.cells));
        let (along, hidden) = self.sides();
        let left = u64::from(self.whole() - 2 * pairs);
        let least = (left.saturating_sub(1) * tile).div_ceil(cells).max(u64::from(hidden) + 1);
        let most = ((left + 1) * tile).div_ceil(cells) - 1;
        let other = (least <= most).then(|| u64::from(along).clamp(least, most) as u32)?;
        Some(match self.direction {
            Direction::Rows => ImageSize { width: along, height: other },
            Direction::Cols => ImageSize { width: other, height: along },
        })
    }
}

impl Region for Chain<'_> {
    type Place = Place;

    fn count(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }

    fn corners(&self) -> (Layout, Layout) {
        // both are monotone along the chain
        let ((rows, cols), (other_rows, other_cols)) =
            (self.emitted(self.first), self.emitted(self.last));
        let layout = |rows, cols| self.policy.layout_of(self.canvas.size, rows, cols);
        (
            layout(rows.min(other_rows), cols.min(other_cols)),
            layout(rows.max(other_rows), cols.max(other_cols)),
        )
    }

    fn split(self, _rising: bool) -> (Vec<Leaf<Place>>, Vec<Self>) {
        let Self { first, last, .. } = self;
        // a formula that rises or falls along the chain is largest at an end
        let ends = [Some(first), (first < last).then_some(last)];
        let middle = first + (last - first) / 2;
        let halves = [(first + 1, middle), (middle + 1, last.saturating_sub(1))];
        let halves = halves.into_iter().filter(|(first, last)| first <= last);
        (
            ends.into_iter().flatten().filter_map(|pairs| self.leaf(pairs)).collect(),
            halves.map(|(first, last)| Self { first, last, ..self }).collect(),
        )
    }
}

/// The first number from `low` up to, not including, `high` for which a condition holds that then goes on to hold; else
/// `high`.
fn first_where(low: u32, high: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// `int(round(x, 7))` of the reference for x at least 0: the integer above, if that is at most 5e-8 away.
///
/// Python rounds the exact decimal value of the double, and no double is exactly half a digit away from an integer
/// (5e-8 has a factor 5 in the denominator). The difference is exact where it matters, and the double 5e-8 is less than
/// the decimal one, so a difference that equals it is less too.
fn floor_after_7_digits(value: f64) -> f64 {
    let above = value.floor() + 1.0;
    if above - value <= 5e-8 { above } else { value.floor() }
}

/// `x // y` of the reference for positive doubles: the floor of the exact quotient, obtained from the remainder.
fn floor_quotient(dividend: f64, divisor: f64) -> f64 {
    let quotient = (dividend - dividend % divisor) / divisor;
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

#[cfg(test)]
mod tests;
