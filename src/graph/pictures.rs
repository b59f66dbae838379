//! Pictures through an encoder: views that do not see each other go through the tower in batches, those of several small
//! pictures together, so that a device has enough to do and memory does not grow with the number of views.

use super::connector::{Connector, Grid};
use super::encoder::{EncodedItem, Encoder, PictureInput};
use super::front::Views;
use super::{Pulse, grid};
use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};

/// Rows that go through the tower at once, if a single view has not more.
const BATCH_ROWS: usize = 4096;

impl<B: Backend> Encoder<B> {
    /// Whether a picture of `views` views of `rows` x `cols` patches may go through the tower with others that have
    /// `pending` views of this grid in all.
    pub fn joins(&self, pending: usize, views: usize, rows: usize, cols: usize) -> bool {
        let patches = (pending + views).saturating_mul(rows).saturating_mul(cols);
        // views that are filled up to a number of tiles see each other
        patches <= BATCH_ROWS && self.front.most_tiles().is_none()
    }

    /// Encodes pictures of one grid; `pulse` is called between blocks, and its error ends the call.
    ///
    /// # Errors
    /// [`ErrorKind::Media`] for a grid that the tower does not take.
    pub fn pictures(
        &self,
        backend: &B,
        pictures: Vec<PictureInput>,
        pulse: Pulse<'_>,
    ) -> Result<Vec<EncodedItem<B>>> {
        let Some(&PictureInput { rows, cols, .. }) = pictures.first() else {
            return Ok(Vec::new());
        };
        let block = self.plan.patch.as_ref().map_or(1, |patch| patch.block.max(1));
        let refused = |message: String| Err(Error::new(ErrorKind::Media, message));
        let odd = rows == 0 || cols == 0 || rows % block != 0 || cols % block != 0;
        if odd || pictures.iter().any(|picture| picture.views == 0) {
            return refused(format!(
                "a grid of {rows}x{cols} patches is not made of blocks of {block}"
            ));
        }
        if pictures.iter().any(|picture| (picture.rows, picture.cols) != (rows, cols)) {
            return refused(
                "pictures of several grids do not go through a tower at once".to_owned(),
            );
        }
        let tiles = self.front.most_tiles();
        let given: Vec<usize> = pictures.iter().map(|picture| picture.views).collect();
        let mut total: usize = given.iter().sum();
        let number = pictures.first().and_then(|picture| picture.arrangement.number).unwrap_or(1);
        let (mut patches, mut arrangements) = (Vec::new(), Vec::new());
        for mut picture in pictures {
            if patches.is_empty() {
                patches = picture.patches;
            } else {
                patches.append(&mut picture.patches);
            }
            arrangements.push(picture.arrangement);
        }
        let each = patches.len() / total;
        let (mut batch, mut real) = ((BATCH_ROWS / (rows * cols)).max(1), None);
        if let Some(most) = tiles {
            if total > most || given.len() > 1 {
                return refused(format!("a picture of {total} tiles, the tower takes {most}"));
            }
            patches.resize(each * most, 0.0);
            real = Some(total);
            (total, batch) = (most, most);
        }
        let mut batches = Vec::new();
        for first in (0..total).step_by(batch) {
            let count = batch.min(total - first);
            let some = if count == total {
                std::mem::take(&mut patches)
            } else {
                patches.get(first * each..(first + count) * each).unwrap_or_default().to_vec()
            };
            let views = Views { count, rows, cols };
            let x = self.front.pictures(backend, some, views, number)?;
            batches.push(self.tower(
                backend,
                x,
                views,
                block,
                (real.unwrap_or(count), number),
                pulse,
            )?);
        }
        drop(patches);
        let join = |parts: Vec<&B::Tensor>| match parts[..] {
            [one] => Ok(one.clone()),
            _ => backend.concat(&parts),
        };
        let tower = join(batches.iter().map(|batch| &batch.features).collect())?;
        let deep = (0..self.deep.len())
            .map(|index| join(batches.iter().filter_map(|batch| batch.deep.get(index)).collect()))
            .collect::<Result<Vec<_>>>()?;
        drop(batches);
        let tokens = backend.shape(&tower).0 / total;
        let (mut first, mut encoded) = (0, Vec::new());
        for (given, arrangement) in given.into_iter().zip(arrangements) {
            let views = if tiles.is_some() { total } else { given };
            let own = |x: &B::Tensor| {
                if views == total {
                    return Ok(x.clone());
                }
                backend.rows(x, first * tokens, views * tokens)
            };
            let grid = Grid { views, rows, cols, block };
            let connect = |connector: &Connector<B>, x: B::Tensor| -> Result<B::Tensor> {
                let x = connector.apply(backend, x, grid, arrangement.pooled.as_ref())?;
                match &arrangement.canvas {
                    Some(canvas) => grid::arrange(backend, &x, views, canvas),
                    None => Ok(x),
                }
            };
            let tower = own(&tower)?;
            let features = connect(&self.connector, tower.clone())?;
            let deep = self.deep.iter().zip(&deep);
            let deep = deep.map(|(connector, states)| connect(connector, own(states)?));
            let deep = deep.collect::<Result<_>>()?;
            let (made, _) = backend.shape(&features);
            let real = if views == given { made } else { made / views * given };
            encoded.push(EncodedItem { views, tower, features, deep, real });
            first += views;
        }
        Ok(encoded)
    }
}
