//! candle's SigLIP tower on the weights of a checkpoint, in f32: a round for every line that comes in.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Instant;

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::siglip::{VisionConfig, VisionModel};

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).expect("CKPT");
    let folder = Path::new(&folder);
    let config = std::fs::read(folder.join("config.json"))?;
    let config: serde_json::Value = serde_json::from_slice(&config).expect("config.json");
    let number = |key: &str| config["vision_config"][key].as_u64().expect(key) as usize;
    let config = VisionConfig {
        hidden_size: number("hidden_size"),
        intermediate_size: number("intermediate_size"),
        num_hidden_layers: number("num_hidden_layers"),
        num_attention_heads: number("num_attention_heads"),
        num_channels: 3,
        image_size: number("image_size"),
        patch_size: number("patch_size"),
        hidden_act: candle_nn::Activation::GeluPytorchTanh,
        layer_norm_eps: 1e-6,
    };
    let index = std::fs::read(folder.join("model.safetensors.index.json"))?;
    let index: serde_json::Value = serde_json::from_slice(&index).expect("the index");
    let mut files: Vec<_> = index["weight_map"].as_object().expect("the index").values().collect();
    files.dedup();
    let files: Vec<_> = files.iter().map(|file| folder.join(file.as_str().expect("a name"))).collect();
    // SAFETY: nobody writes to the files meanwhile.
    let weights = unsafe { VarBuilder::from_mmaped_safetensors(&files, DType::F32, &Device::Cpu)? };
    let model = VisionModel::new(&config, false, weights.pp("vision_tower.vision_model"))?;
    let side = config.image_size;
    let pixels = Tensor::rand(-1f32, 1f32, (1, 3, side, side), &Device::Cpu)?;
    println!("ready");
    for line in io::stdin().lock().lines() {
        line?;
        let start = Instant::now();
        let rows = model.forward(&pixels)?;
        let encode = start.elapsed().as_secs_f64();
        println!("{}", serde_json::json!({"encode": encode, "rows": rows.dims()}));
        io::stdout().flush()?;
    }
    Ok(())
}
