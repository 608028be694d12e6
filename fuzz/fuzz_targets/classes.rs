//! Any text as a class table: refused in one line, or at most 255 classes with names of their own, and codes of these.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use stokehold_storage::{Coding, IGNORE, PixelClasses};

fuzz_target!(|text: &str| {
    let classes = match PixelClasses::parse(text) {
        Ok(classes) => classes,
        Err(reason) => {
            assert!(reason.starts_with("line ") && !reason.contains('\n'), "{reason}");
            return;
        }
    };
    let count = classes.names.len();
    assert!((1..=255).contains(&count));
    assert_eq!(classes.names.iter().collect::<BTreeSet<_>>().len(), count);
    assert!(classes.colors.is_none_or(|colors| colors.len() == count));
    let known: BTreeSet<u8> = match classes.coding {
        Coding::Values(values) => values.into_values().collect(),
        Coding::Colors(colors) => colors.into_values().collect(),
    };
    assert!(
        known
            .iter()
            .all(|&class| usize::from(class) < count || class == IGNORE)
    );
});
