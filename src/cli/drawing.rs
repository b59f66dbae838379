//! The topology of a planned family as boxes: in text, and as SVG.

use std::fmt::Write as _;

use vlm_spec::descriptor::block::MlpKind;
use vlm_spec::plan::Plan;
use vlm_spec::plan::graph::{BlockPlan, GraphPlan, OpPlan, PositionRule, StackPlan};

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
            let mut lines: Vec<_> = encoder
                .patch
                .iter()
                .map(|patch| {
                    let width = encoder.stack.width;
                    format!("patches of {0}x{0} px -> rows of {width}", patch.size)
                })
                .collect();
            if encoder.class.is_some() {
                lines.push("a class row first".to_owned());
            }
            if let Some(table) = &encoder.position {
                lines.push(format!("{} learned positions", table.rows));
            }
            lines.extend(stack(&encoder.stack));
            lines.extend(encoder.then.iter().flat_map(stack));
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
            let lines = encoder.ops.iter().flat_map(step).collect();
            stages.push(Stage { title: "connector".to_owned(), lines });
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

/// A step of a connector.
fn step(op: &OpPlan) -> Vec<String> {
    vec![match op {
        OpPlan::Linear { input, out, .. } => format!("linear {input} -> {out}"),
        OpPlan::Activation(activation) => format!("{activation:?}").to_lowercase(),
        OpPlan::Norm { norm, .. } => format!("{:?} norm", norm.kind).to_lowercase(),
        OpPlan::Merge { side, .. } => format!("merge {side}x{side} cells"),
        OpPlan::Pool { side } => format!("average of {side}x{side} cells"),
        OpPlan::Average { count } => format!("average of {count} rows"),
        OpPlan::Conv { side, input, out, .. } => {
            format!("convolution of {side}x{side} cells {input} -> {out}")
        }
        OpPlan::Glu { width, .. } => format!("gated linear unit -> {width}"),
        OpPlan::Scale(by) => format!("times {by}"),
        OpPlan::Mlp { mlp, input, out, .. } => format!("mlp {input} -> {} -> {out}", mlp.hidden),
        OpPlan::Attend { side, out, .. } => format!("attention over {side}x{side} cells -> {out}"),
        OpPlan::Query { count, stack: plan, .. } => {
            let mut lines = vec![format!("{count} queries through a stack")];
            lines.extend(stack(plan));
            return lines;
        }
    }]
}

/// Every kind of layer of a stack.
fn stack(plan: &StackPlan) -> Vec<String> {
    let mut lines = vec![format!("{} blocks of width {}", plan.layers, plan.width)];
    for (index, kind) in plan.kinds.iter().enumerate() {
        if plan.kinds.len() > 1 {
            let count = plan.kind_of.iter().filter(|of| **of == index).count();
            let name = if kind.kind.is_empty() { "other" } else { &kind.kind };
            lines.push(format!("  {count} {name}"));
        }
        lines.extend(block(kind));
    }
    lines
}

fn block(plan: &BlockPlan) -> Vec<String> {
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
    let experts = match &plan.mlp.experts {
        Some(experts) => format!(" in {} experts", experts.count),
        None => String::new(),
    };
    vec![
        format!("  {} heads of {}{groups}{rope}", attention.heads, attention.head_dim),
        format!("  {kind} of {}{experts}, {:?}", plan.mlp.hidden, plan.mlp.act).to_lowercase(),
    ]
}
