//! The topology of a planned family as boxes: in text, and as SVG.

use std::fmt::Write as _;

use vlm_spec::descriptor::block::MlpKind;
use vlm_spec::plan::Plan;
use vlm_spec::plan::graph::{GraphPlan, OpPlan, PositionRule, StackPlan};

/// One box: a title and what is in it.
struct Stage {
    title: String,
    lines: Vec<String>,
}

/// A column of boxes.
pub(super) struct Drawing {
    stages: Vec<Stage>,
}

impl Drawing {
    /// The stages of a plan, from picture to logits.
    pub(super) fn new(plan: &Plan, graph: &GraphPlan) -> Self {
        let mut stages = Vec::new();
        if let (Some(encoder), Some(Ok(media))) = (&graph.image, &plan.image) {
            let resize = media.shape.policy.describe();
            stages.push(Stage { title: "picture".to_owned(), lines: vec![resize] });
            let patch = &encoder.patch;
            let mut lines = vec![format!(
                "patches of {0}x{0} px -> rows of {1}",
                patch.size, encoder.stack.width
            )];
            if encoder.class.is_some() {
                lines.push("a class row first".to_owned());
            }
            if let Some((rows, _)) = &encoder.position {
                lines.push(format!("{rows} learned positions"));
            }
            lines.extend(stack(&encoder.stack));
            let taps: Vec<_> = encoder.taps.iter().map(usize::to_string).collect();
            lines.push(format!(
                "read after {} of {} blocks",
                taps.join(", "),
                encoder.stack.layers
            ));
            if encoder.drop > 0 {
                lines.push(format!("{} leading row dropped", encoder.drop));
            }
            stages.push(Stage { title: "tower".to_owned(), lines });
            let ops = encoder.ops.iter().map(|op| match op {
                OpPlan::Linear { input, out, .. } => format!("linear {input} -> {out}"),
                OpPlan::Activation(activation) => format!("{activation:?}").to_lowercase(),
                OpPlan::Norm { norm, .. } => format!("{:?} norm", norm.kind).to_lowercase(),
                OpPlan::Merge { side } => format!("merge {side}x{side} cells"),
            });
            stages.push(Stage { title: "connector".to_owned(), lines: ops.collect() });
            stages.push(Stage {
                title: "strip".to_owned(),
                lines: vec![media.shape.strip.text().to_owned()],
            });
        }
        let decoder = &graph.decoder;
        let mut lines =
            vec![format!("{} tokens, rows of {}", decoder.embed_rows, decoder.stack.width)];
        lines.push(match &graph.positions {
            PositionRule::Sequential { .. } => "positions on one axis".to_owned(),
            PositionRule::Mrope { .. } => "positions on three axes".to_owned(),
        });
        lines.extend(stack(&decoder.stack));
        lines.push(format!(
            "{} logits{}",
            decoder.head_rows,
            if decoder.tied { ", head tied" } else { "" }
        ));
        stages.push(Stage { title: "decoder".to_owned(), lines });
        Self { stages }
    }

    /// Boxes of characters.
    pub(super) fn text(&self) -> String {
        let width = self
            .stages
            .iter()
            .flat_map(|stage| stage.lines.iter().map(String::len).chain([stage.title.len() + 2]))
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for (index, stage) in self.stages.iter().enumerate() {
            if index > 0 {
                let _ = writeln!(text, "{:>1$}", "|", 4);
            }
            let _ =
                writeln!(text, "+- {} {}+", stage.title, "-".repeat(width - stage.title.len() - 1));
            for line in &stage.lines {
                let _ = writeln!(text, "| {line:width$} |");
            }
            let _ = writeln!(text, "+{}+", "-".repeat(width + 2));
        }
        text
    }

    /// The same as SVG.
    pub(super) fn svg(&self) -> String {
        const WIDTH: usize = 460;
        const LINE: usize = 18;
        const MARGIN: usize = 12;
        const GAP: usize = 22;
        let mut body = String::new();
        let mut top = MARGIN;
        for (index, stage) in self.stages.iter().enumerate() {
            let height = (stage.lines.len() + 1) * LINE + MARGIN;
            if index > 0 {
                let middle = WIDTH / 2;
                let _ = writeln!(
                    body,
                    r##"<line x1="{middle}" y1="{}" x2="{middle}" y2="{top}" stroke="#333"/>"##,
                    top - GAP
                );
            }
            let inner = WIDTH - 2 * MARGIN;
            let _ = writeln!(
                body,
                r##"<rect x="{MARGIN}" y="{top}" width="{inner}" height="{height}" rx="6" fill="#f6f6f2" stroke="#333"/>"##
            );
            let mut line = |text: &str, row: usize, weight: &str| {
                let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let (x, y) = (2 * MARGIN, top + row * LINE + LINE);
                let _ = writeln!(
                    body,
                    r#"<text x="{x}" y="{y}" font-weight="{weight}">{escaped}</text>"#
                );
            };
            line(&stage.title, 0, "bold");
            for (row, text) in stage.lines.iter().enumerate() {
                line(text, row + 1, "normal");
            }
            top += height + GAP;
        }
        let height = top - GAP + MARGIN;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"monospace\" font-size=\"13\">\n{body}</svg>\n"
        )
    }
}

fn stack(plan: &StackPlan) -> Vec<String> {
    let attention = &plan.attention;
    let groups = if attention.kv_heads == attention.heads {
        String::new()
    } else {
        format!(" over {} key heads", attention.kv_heads)
    };
    let rope = match &attention.rope {
        Some(rope) if rope.axes.len() > 1 => format!(", rotary on {} axes", rope.axes.len()),
        Some(_) => ", rotary".to_owned(),
        None => String::new(),
    };
    let kind = match plan.mlp.kind {
        MlpKind::Plain => "mlp",
        MlpKind::Gated => "gated mlp",
    };
    vec![
        format!("{} blocks of width {}", plan.layers, plan.width),
        format!("  {} heads of {}{groups}{rope}", attention.heads, attention.head_dim),
        format!("  {kind} of {}, {:?}", plan.mlp.hidden, plan.mlp.act).to_lowercase(),
    ]
}
