//! The tensors of an encoder.

use super::{Component, List};
use crate::descriptor::tower::PatchForm;
use crate::plan::graph::{EncoderPlan, PatchPlan, TilesPlan};

impl List {
    pub(super) fn encoder(&mut self, encoder: &EncoderPlan) {
        let (tower, connector) = Component::of_modality(encoder.modality);
        let at = |key: &str| format!("{}.{key}", encoder.modality);
        let width = encoder.stack.width;
        self.component = tower;
        self.required = true;
        if let Some(patch) = &encoder.patch {
            self.patch(patch, width, &at("tower.patch"));
        }
        for (index, conv) in encoder.frames.iter().enumerate() {
            let key = at(&format!("tower.frames.{index}.name"));
            let shape = vec![conv.out, conv.input, conv.kernel];
            self.add(format!("{}.weight", conv.name), shape, &key);
            if conv.bias {
                self.add(format!("{}.bias", conv.name), vec![conv.out], &key);
            }
        }
        let axes = |ones: usize, rest: &[usize]| {
            let mut shape = vec![1; ones];
            shape.extend(rest);
            shape
        };
        if let Some(class) = &encoder.class {
            let shape = axes(class.ones, &[width]);
            self.add(class.parameter.clone(), shape, &at("tower.class.parameter"));
        }
        if let Some(table) = &encoder.position {
            let mut shape = vec![1; table.ones];
            shape.extend(table.axes);
            shape.extend([table.rows, width]);
            self.add(table.tensor.clone(), shape, &at("tower.position.name"));
        }
        if let (Some(tiles), Some(table)) = (&encoder.tiles, &encoder.position) {
            self.tiles(tiles, table.rows, width, &at("tower.tiles"));
        }
        if let Some(norm) = &encoder.enter {
            self.norm(norm, width, &at("tower.enter.name"));
        }
        self.stack(&encoder.stack, encoder.depth());
        if let Some(norm) = &encoder.leave {
            self.required = encoder.norm || encoder.then.is_some();
            self.norm(norm, width, &at("tower.leave.name"));
            self.required = true;
        }
        if let Some(then) = &encoder.then {
            let needed = if encoder.last { then.layers } else { 0 };
            self.stack(then, needed);
        }
        self.component = connector;
        self.ops(&encoder.ops, &at("connector.ops"));
        if let Some(deep) = &encoder.deepstack {
            for ops in &deep.ops {
                self.ops(ops, &at("connector.deepstack.ops"));
            }
        }
        for (name, parameter) in &encoder.vectors {
            let key = at(&format!("connector.vectors.{name}.parameter"));
            self.add(parameter.clone(), vec![encoder.out], &key);
        }
    }

    fn patch(&mut self, patch: &PatchPlan, width: usize, key: &str) {
        let key_name = format!("{key}.name");
        let frames = patch.frames.into_iter();
        let shape = match patch.form {
            PatchForm::Conv => {
                let mut shape = vec![width, 3];
                shape.extend(frames);
                shape.extend([patch.size, patch.size]);
                shape
            }
            PatchForm::Linear | PatchForm::LinearChannels => {
                vec![width, 3 * frames.product::<usize>() * patch.size * patch.size]
            }
        };
        self.add(format!("{}.weight", patch.name), shape, &key_name);
        if patch.bias {
            self.add(format!("{}.bias", patch.name), vec![width], &key_name);
        }
        if let Some(norm) = &patch.norm {
            self.norm(norm, width, &format!("{key}.norm.name"));
        }
    }

    fn tiles(&mut self, tiles: &TilesPlan, rows: usize, width: usize, key: &str) {
        let [table, before, after] = &tiles.names;
        let arrangements = tiles.arrangements + 1;
        let key_of = |name: &str| format!("{key}.{name}");
        self.add(format!("{table}.gate"), vec![1], &key_of("table"));
        let shape = vec![arrangements, tiles.most * rows * width];
        self.add(format!("{table}.tile_embedding.weight"), shape, &key_of("table"));
        for (slot, prefix) in [("before", before), ("after", after)] {
            self.add(format!("{prefix}.gate"), vec![1], &key_of(slot));
            let shape = vec![arrangements, tiles.most * width];
            self.add(format!("{prefix}.embedding.weight"), shape, &key_of(slot));
        }
    }
}
