//! Compiles the shim against the headers of the libjpeg-turbo that turbojpeg-sys built.

fn main() {
    println!("cargo:rerun-if-changed=src/turbo.c");
    let include = std::env::var("DEP_TURBOJPEG_INCLUDE").expect("turbojpeg-sys names its headers");
    cc::Build::new()
        .file("src/turbo.c")
        .include(include)
        .opt_level(2)
        .compile("turbo");
}
