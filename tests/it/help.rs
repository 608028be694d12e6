//! The help texts, as users see them. A change is accepted with `INSTA_UPDATE=always cargo test --release help`, and read in review.

use std::process::Command;

fn help(command: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(command)
        .arg("--help")
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands below one, by its help text.
fn commands(text: &str) -> Vec<String> {
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn help_texts_are_as_they_were_read() {
    let (mut waiting, mut seen) = (vec![Vec::new()], 0);
    while let Some(command) = waiting.pop() {
        let text = help(&command);
        for name in commands(&text) {
            waiting.push([&command[..], &[name]].concat());
        }
        seen += 1;
        let name = [&["help".to_owned()][..], &command].concat().join("_");
        insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, text);
        });
    }
    assert!(seen >= 34, "{seen} commands");
}
