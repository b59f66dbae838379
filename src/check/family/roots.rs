//! Sets of tensor prefixes, and forms of the weights, that can never be chosen: another one is there first.

use crate::descriptor::family::{Family, Root};
use crate::descriptor::{Descriptor, Node};
use crate::problem::{Level, Place, Problem, Problems};

pub(super) fn check(descriptor: &Descriptor) -> Problems {
    let mut problems = Problems::default();
    same_roots(&descriptor.family, |key| descriptor.place(key), "", &mut problems);
    let mut forms = vec![("the family itself".to_owned(), bare(descriptor.source()))];
    for (index, layout) in descriptor.layouts.iter().enumerate() {
        let form = bare(layout.source());
        let key = format!("tensors.layouts.{}", layout.name);
        if let Some((name, _)) = forms.iter().find(|(_, known)| *known == form) {
            problems.push(
                Problem::error(
                    "layout-unreachable",
                    format!("layout `{}` changes nothing", layout.name),
                )
                .level(Level::Warning)
                .at(descriptor.place(&key))
                .expected_found("another form of the weights", format!("the same as {name}"))
                .with_hint("the first of equal forms is taken; remove this one"),
            );
            continue;
        }
        let written = descriptor.source().get(&format!("{key}.tensors.roots")).is_some();
        if written {
            let place = |key: &str| descriptor.layout_place(Some(index), key);
            same_roots(
                &layout.family,
                place,
                &format!("tensors.layouts.{}.", layout.name),
                &mut problems,
            );
        }
        forms.push((format!("layout `{}`", layout.name), form));
    }
    problems
}

fn same_roots(
    family: &Family,
    place: impl Fn(&str) -> Place,
    above: &str,
    problems: &mut Problems,
) {
    let roots: Vec<_> = family.tensors.roots.iter().map(|root| normalised(root, family)).collect();
    for (index, root) in roots.iter().enumerate() {
        let Some(first) = roots.iter().take(index).position(|known| known == root) else {
            continue;
        };
        let key = format!("tensors.roots.{index}");
        let mut place = place(&key);
        place.key = Some(format!("{above}{key}"));
        problems.push(
            Problem::error("root-unreachable", format!("root {} is never chosen", index + 1))
                .level(Level::Warning)
                .at(place)
                .expected_found(
                    "prefixes that no other root has",
                    format!("those of root {}, which is found first", first + 1),
                ),
        );
    }
}

/// The prefixes that tensors of this family can stand under.
fn normalised(root: &Root, family: &Family) -> Root {
    let trimmed = |prefix: &str| prefix.trim_matches('.').to_owned();
    let of =
        |prefix: &Option<String>, there: bool| prefix.as_deref().filter(|_| there).map(trimmed);
    let (image, audio) = (family.image.is_some(), family.audio.is_some());
    Root {
        tower: of(&root.tower, image),
        connector: of(&root.connector, image),
        audio_tower: of(&root.audio_tower, audio),
        audio_connector: of(&root.audio_connector, audio),
        decoder: trimmed(&root.decoder),
        head: trimmed(&root.head),
    }
}

/// The merged tables without the forms that are laid over them.
fn bare(source: &Node) -> serde_json::Value {
    let mut source = source.clone();
    source.remove("tensors.layouts");
    source.to_json()
}
