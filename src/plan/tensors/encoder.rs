//! The tensors of an encoder and its connector.

use super::{Component, List};
use crate::plan::graph::{EncoderPlan, OpPlan};

impl List {
    pub(super) fn encoder(&mut self, encoder: &EncoderPlan) {
        let tower = Component::Tower;
        let width = encoder.stack.width;
        let patch = &encoder.patch;
        let mut shape = vec![width, 3];
        shape.extend(patch.frames);
        shape.extend([patch.size, patch.size]);
        self.add(tower, format!("{}.weight", patch.name), shape, true, "image.tower.patch.name");
        if patch.bias {
            self.add(
                tower,
                format!("{}.bias", patch.name),
                vec![width],
                true,
                "image.tower.patch.name",
            );
        }
        if let Some(class) = &encoder.class {
            self.add(tower, class.clone(), vec![width], true, "image.tower.class.parameter");
        }
        if let Some((rows, name)) = &encoder.position {
            self.add(
                tower,
                format!("{name}.weight"),
                vec![*rows, width],
                true,
                "image.tower.position.name",
            );
        }
        if let Some(norm) = &encoder.enter {
            self.norm(tower, norm, width, "image.tower.enter.name");
        }
        self.stack(tower, &encoder.stack, encoder.depth());
        for (index, op) in encoder.ops.iter().enumerate() {
            let key = format!("image.connector.ops.{index}.name");
            match op {
                OpPlan::Linear { input, out, bias, name } => {
                    self.linear(Component::Connector, name, [*out, *input], *bias, true, &key);
                }
                OpPlan::Norm { norm, width } => self.norm(Component::Connector, norm, *width, &key),
                OpPlan::Activation(_) | OpPlan::Merge { .. } => {}
            }
        }
    }
}
