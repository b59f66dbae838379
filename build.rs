//! Embeds every file below `families/` as a table of (path without extension, text).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("families");
    println!("cargo::rerun-if-changed=families");
    let mut files = Vec::new();
    walk(&folder, &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for file in files {
        let relative = file.strip_prefix(&folder).unwrap_or(&file).with_extension("");
        let name = relative.to_string_lossy().replace('\\', "/");
        println!("cargo::rerun-if-changed={}", file.display());
        writeln!(table, "    ({name:?}, include_str!({:?})),", file.display().to_string())
            .map_err(io::Error::other)?;
    }
    table.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("families.rs"), table)
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    Ok(())
}
