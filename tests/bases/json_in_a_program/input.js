var plants = [
 {
  "id": "P1",
  "name": "Acorn"
 },
 {
  "id": "P2",
  "name": "Birch"
 },
 {
  "id": "P3",
  "name": "Cedar"
 },
 {
  "id": "P4",
  "name": "Dogwood"
 },
 {
  "id": "P5",
  "name": "Elm"
 },
 {
  "id": "P6",
  "name": "Fir"
 },
 {
  "id": "P7",
  "name": "Ginkgo"
 },
 {
  "id": "P8",
  "name": "Hazel"
 },
 {
  "id": "P9",
  "name": "Ivy"
 },
 {
  "id": "P10",
  "name": "Juniper"
 },
 {
  "id": "P11",
  "name": "Kapok"
 },
 {
  "id": "P12",
  "name": "Larch"
 },
 {
  "id": "P13",
  "name": "Maple"
 },
 {
  "id": "P14",
  "name": "Nutmeg"
 }
];
