//! Upstreams of one kind.

use waypost_config::{Family, parse_str};

use super::check;

#[test]
fn an_upstream_is_meant_by_its_name_unless_the_file_says_otherwise() {
    let yaml = "upstreams:\n  a: { command: x, family: { name: k8s, argument: cluster } }\n  \
         b: { command: x, family: { name: k8s, argument: cluster, value: EU 1 } }\n  c: { command: x }\n";
    let loaded = parse_str(yaml).unwrap();
    assert_eq!(loaded.warnings, []);
    let families: Vec<_> = loaded
        .config
        .upstreams
        .iter()
        .map(|u| u.family.clone())
        .collect();
    let family = |value: &str| {
        Some(Family {
            name: "k8s".to_owned(),
            argument: "cluster".to_owned(),
            value: value.to_owned(),
        })
    };
    assert_eq!(families, [family("a"), family("EU 1"), None]);
}

#[test]
fn what_makes_no_family_is_told() {
    check(
        "upstreams: {a: {command: x, family: {}}, b: {command: x, family: {name: B_, argument: a b, value: ''}}}",
        &[
            "1:29 error upstreams.a.family: needs `name` (write `family: { name: ..., argument: ... }`)",
            "1:29 error upstreams.a.family: needs `argument` (write `family: { name: ..., argument: ... }`)",
            "1:73 error upstreams.b.family.name: not a name: a lower-case letter, then at most 31 \
             lower-case letters, digits and `-` (call it `b`)",
            "1:87 error upstreams.b.family.argument: no name for an argument (use letters, digits, `_` and \
             `-`, at most 64)",
            "1:99 error upstreams.b.family.value: no value for an argument (write 1 to 64 characters that \
             can be seen)",
        ],
    );
}

#[test]
fn families_are_unlike_upstreams_and_agree_with_themselves() {
    check(
        "upstreams:\n  a: { command: x, family: { name: b, argument: i } }\n  b: { command: x }\n  \
         c: { command: x, family: { name: k, argument: i } }\n  \
         d: { command: x, family: { name: k, argument: j, value: c } }\n  \
         k-x: { command: x, prefix: k_x }\n",
        &[
            "2:36 error upstreams.a.family.name: an upstream has or had this name (choose another for the \
             family)",
            "4:36 warning upstreams.c.family.name: its tools may be called as those of `k-x` (give the \
             family another name, or `prefix` to the other)",
            "5:20 error upstreams.d.family: `c` has the value `c` too (give one of them another `value`)",
            "5:36 warning upstreams.d.family.name: its tools may be called as those of `k-x` (give the \
             family another name, or `prefix` to the other)",
            "5:49 error upstreams.d.family.argument: `c` of the same family has another (all of a family \
             have the same argument)",
        ],
    );
}
